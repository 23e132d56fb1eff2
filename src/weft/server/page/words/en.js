// English.
export default {
  // Everywhere
  skip: 'Skip to the content', views: 'Views', working: 'Working…', failed: 'That did not work', noAnswer: 'The server does not answer. Is weft serve still running?',
  serverBusy: 'The server is busy', tookTooLong: 'That took too long', tryAgain: 'Try again', save: 'Save', saveSvg: 'Picture (SVG)', saveHtml: 'Web page (HTML)',
  saveJson: 'Data (JSON)', model: 'Model', text: 'Text', theme: 'Theme: {theme}', 'theme-auto': 'as the system', 'theme-light': 'light', 'theme-dark': 'dark',
  keyTitle: 'This server asks for a key', key: 'API key', open: 'Open', nats: 'nats', unknown: 'Not in the vocabulary: {words}', nothingFound: 'Nothing was found',
  probability: 'probability', method: 'Method', step: 'Step', score: 'score', shownAs: 'Shown as',
  'view-write': 'Write', 'view-translate': 'Translate', 'view-label': 'Tag · Classify · Fill', 'view-look': 'Look', 'view-learn': 'Learn', 'view-compare': 'Compare',
  'task-lm': 'language model', 'task-ngram': 'n-gram model', 'task-hmm': 'hidden Markov model', 'task-fill': 'fill-in-the-blank', 'task-classify': 'classifier',
  'task-tag': 'tagger', 'task-segment': 'segmenter', 'task-translate': 'translator', 'task-forecast': 'forecaster',
  // Write
  writeIntro: 'The model writes token by token. The stronger the tint of a token, the less the model expected it.',
  prompt: 'Prompt', promptEmpty: 'Empty: a new line', temperature: 'Temperature', topP: 'Top-p', greedy: 'greedy', length: 'Tokens', seed: 'Seed', write: 'Write', writeOn: 'Continue',
  stop: 'Stop', clear: 'Start over', submitHint: 'in the prompt does the same.', alternatives: 'Alternatives', forkHere: 'Fork here', chooseHint: 'Choose a token: the text goes on from there.',
  branch: 'Branch {n}', branches: 'Branches', surprisalTitle: 'Surprisal of each token', meanSurprisal: '{n} tokens written; mean surprisal {nats} nats, perplexity {perplexity}',
  tokenHint: 'Press a token to see what else could stand there.', lookInside: 'Look inside', writeEmpty: 'Nothing written yet', writeHint: 'Press Write. Temperature and top-p may be changed while the model writes.',
  // Translate
  translateIntro: 'A translation, where each word looks in the source, and what the search considered.', sourceText: 'Source text', beamWidth: 'Beam width',
  translateEmpty: 'Nothing to translate', translateHint: 'Enter a sentence to begin.', translation: 'Translation', wordHint: 'Press a word to choose another one; the rest follows',
  probabilityOf: 'probability {p}', release: 'Back to the best translation', otherWordHint: 'Choose a word: the rest of the sentence follows it.', otherTranslations: 'Other translations',
  attentionTitle: 'Attention', attentionNote: 'Source above, translation below. Point at a word to see only its lines.', lines: 'Lines', heatMap: 'Heat map',
  beamTitle: 'Beam search', beamNote: 'Every hypothesis of a beam of width {width}, by log P. The best path is in colour; a circle marks the end of a hypothesis.', showDropped: 'Show dropped hypotheses',
  'beam-kept': 'kept in the beam', 'beam-ended': 'ended', 'beam-cut': 'cut at the maximum length', 'beam-outranked': 'outranked', 'beam-pruned': 'pruned',
  // Tag, classify, fill
  labelIntro: 'What the model says about a text, how sure it is, and which words speak for it.', use: 'Use', labelEmpty: 'No text yet', labelHint: 'Enter a text to begin.',
  addBlank: 'Add a blank', blankHint: 'Three underscores (___) are a blank.', noBlank: 'The text has no blank', labelsTitle: 'Probability of each label', firstOf: 'The first {n} of {all}.',
  evidenceTitle: 'Evidence for {what} ({p})', 'evidence-occlusion': 'Occlusion', 'evidence-integrated': 'Integrated gradients', 'evidence-pooling': 'Pooling',
  'evidence-occlusion-note': 'How much log P falls without the token. Orange speaks for the prediction, blue against it.',
  'evidence-integrated-note': 'The share of the token in log P. Orange speaks for the prediction, blue against it.', 'evidence-pooling-note': 'The weight of the token in the pooling of the classifier.',
  tagsTitle: 'Tags', tagsNote: 'The small number is the probability of the tag; all tags together have {p}.', tagHint: 'Press a word to see its other tags and the evidence.', span: 'Span', label: 'Label',
  tagsOfWord: 'Tags of “{word}”', marginalsTitle: 'Marginal probabilities', marginalsNote: 'The probability of each tag at each word, given the whole text. Tags below 0.5 % are left out.',
  segmentsTitle: 'Words', fillsTitle: 'Most probable fills', fillsNote: 'The joint probability of all blanks.',
  // Look
  lookIntro: 'What happens inside a recurrent network while it reads a text.', show: 'Show', 'show-gates': 'Gates and states', 'show-surprisal': 'Surprisal', 'show-connectivity': 'Connectivity', 'show-gradient': 'Gradients through time', 'show-posterior': 'Hidden states',
  'show-gates-note': 'Each unit at each token. Choose a unit to see what activates it.', 'show-surprisal-note': 'How unexpected each token is.', 'show-connectivity-note': 'Which tokens influence a prediction: point at one.',
  'show-gradient-note': 'How much of the gradient of a prediction reaches each earlier step.', 'show-posterior-note': 'The probability of each hidden state at each token.', noProbes: 'This model has nothing to look at',
  layer: 'Layer', part: 'Gate or state', unit: 'Unit', gateName: 'gate {name}', stateName: 'state {name}', layerNumber: 'layer {n}', forward: 'forward', backward: 'backward', gateTitle: '{part} of {where} ({cell})',
  gateNote: 'Rows are units, columns tokens. Press a row to choose its unit; arrow keys move the pointer.', unitTitle: 'Unit {unit}: {part} of {where}', unitHint: 'Choose a unit in the map or by its number.',
  passagesTitle: 'Passages that activate unit {unit} most', passagesNote: 'Its hidden state in {n} tokens; the strongest first.', passage: 'Passage', corpus: 'Text to search', heldOut: 'Held-out data of the run',
  notPredicted: 'not predicted', contextLeft: 'Each token given the tokens before it.', contextBoth: 'Each token given all others.',
  influenceTitle: 'Influence on the prediction of “{what}”', gradientTitle: 'Gradient of the loss of “{what}”', pointHint: 'Point at a token: the others show how much they count for it. Press it to hold.', pickHint: 'Point at a prediction: the tokens show how much they count for it.',
  predictions: 'Predictions', norm: 'norm', 'method-gradient': 'Gradient norm', 'method-integrated': 'Integrated gradients', gradientOf: 'Gradient with respect to', gradientCurve: 'Norm at each step', gradientNote: 'Logarithmic. A line that falls to the left is a gradient that vanishes.',
  transitionsTitle: 'Transitions', transitionsNote: 'From the row to the column.', emissionsTitle: 'Most probable tokens of each state', logLikelihood: 'Log-likelihood of the text: {value}',
  // Learn
  learnIntro: 'Training curves of the runs below a folder, live while they train.', run: 'Run', state: 'State', task: 'Task', data: 'Data', best: 'Best', weights: 'Weights', changed: 'Changed', curves: 'Curves',
  'state-training': 'training', 'state-done': 'done', 'state-started': 'started', justNow: 'just now', minutesAgo: '{n} min ago', hoursAgo: '{n} h ago', daysAgo: '{n} days ago', inTraining: '{run}, training',
  quality: 'Loss and scores', optimization: 'Optimization', noCurves: 'No measurements yet', chooseRuns: 'Choose a run above', live: 'A run is training: the curves follow it.', notLive: 'No run is training now.', logScale: 'Logarithmic',
  noRunsFolder: 'No folder of runs is served', noRunsHint: 'Start the server with a folder:', noRuns: 'No runs yet', noRunsYet: 'Runs appear here as soon as a training starts.',
  // Compare
  compareIntro: 'Two runs on the same text.', firstRun: 'First run', secondRun: 'Second run', surprisalOf: 'Surprisal: {run}', meanNats: 'Mean {nats} nats', differenceTitle: 'Difference of the surprisals',
  differenceNote: '{first} minus {second}. Orange: {second} predicts the token better; blue: {first} does.', otherTokens: 'The runs split the text into different tokens, so there is no difference token by token.', sameAnswer: 'Both say the same.', otherAnswer: 'They differ.',
  settingsTitle: 'Scores, and settings that differ', bestOf: 'Best held-out {metric}', oneRun: 'There is only one run', oneRunHint: 'Serve two to compare them:', nothingCommon: 'These runs have no task in common; only their settings can be compared.',
};
