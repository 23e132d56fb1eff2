// 中文。
export default {
  // 通用
  skip: '跳到正文', views: '视图', working: '计算中…', failed: '出错了', noAnswer: '服务器没有响应。weft serve 还在运行吗？',
  serverBusy: '服务器繁忙', tookTooLong: '计算超时', tryAgain: '重试', save: '保存', saveSvg: '图片（SVG）', saveHtml: '网页（HTML）',
  saveJson: '数据（JSON）', model: '模型', text: '文本', theme: '主题：{theme}', 'theme-auto': '跟随系统', 'theme-light': '浅色', 'theme-dark': '深色',
  keyTitle: '此服务器需要密钥', key: 'API 密钥', open: '打开', nats: '奈特', unknown: '不在词表中：{words}', nothingFound: '没有结果',
  probability: '概率', method: '方法', step: '步', score: '得分', shownAs: '显示方式',
  'view-write': '写作', 'view-translate': '翻译', 'view-label': '标注 · 分类 · 填空', 'view-look': '透视', 'view-learn': '训练', 'view-compare': '对比',
  'task-lm': '语言模型', 'task-ngram': 'n 元语法', 'task-hmm': '隐马尔可夫模型', 'task-fill': '填空', 'task-classify': '分类',
  'task-tag': '序列标注', 'task-segment': '分词', 'task-translate': '翻译', 'task-forecast': '预测',
  // 写作
  writeIntro: '模型逐词元写作。底色越明显，模型越没有料到这个词元。',
  prompt: '开头', promptEmpty: '留空则另起一行', temperature: '温度', topP: 'Top-p', greedy: '贪心', length: '词元数', seed: '随机种子', write: '开始写', writeOn: '继续写',
  stop: '停止', clear: '重新开始', submitHint: '在开头框中按下即可开始。', alternatives: '候选词元', forkHere: '从这里分叉', chooseHint: '选一个词元，后文随之重写。',
  branch: '分支 {n}', branches: '分支', surprisalTitle: '各词元的意外程度', meanSurprisal: '已写 {n} 个词元；平均意外程度 {nats} 奈特，困惑度 {perplexity}',
  tokenHint: '点击词元，查看这里还可能出现什么。', lookInside: '查看内部', writeEmpty: '还没有内容', writeHint: '点击“开始写”。写作过程中可以随时调整温度和 top-p。',
  // 翻译
  translateIntro: '译文、每个词所关注的原文，以及束搜索考虑过的全部假设。', sourceText: '原文', beamWidth: '束宽',
  translateEmpty: '没有要翻译的文本', translateHint: '输入一个句子即可开始。', translation: '译文', wordHint: '点击一个词可以换成别的词，后文随之改变',
  probabilityOf: '概率 {p}', release: '恢复最佳译文', otherWordHint: '选一个词，句子的其余部分随之改变。', otherTranslations: '其他译文',
  attentionTitle: '注意力', attentionNote: '上方为原文，下方为译文。指向一个词，只显示它的连线。', lines: '连线', heatMap: '热图',
  beamTitle: '束搜索', beamNote: '束宽为 {width} 时的全部假设，按 log P 排列。最佳路径以颜色标出，圆圈表示假设在此结束。', showDropped: '显示被淘汰的假设',
  'beam-kept': '保留在束中', 'beam-ended': '已结束', 'beam-cut': '达到最大长度', 'beam-outranked': '被更好的假设超过', 'beam-pruned': '被剪枝',
  // 标注、分类、填空
  labelIntro: '模型对文本的判断、把握有多大，以及依据哪些词。', use: '用途', labelEmpty: '还没有文本', labelHint: '输入一段文本即可开始。',
  addBlank: '插入一个空', blankHint: '三个下划线（___）表示一个空。', noBlank: '文本中没有空', labelsTitle: '各标签的概率', firstOf: '共 {all} 个，显示前 {n} 个。',
  evidenceTitle: '“{what}”（{p}）的依据', 'evidence-occlusion': '遮挡', 'evidence-integrated': '积分梯度', 'evidence-pooling': '池化权重',
  'evidence-occlusion-note': '去掉该词元后 log P 下降多少。橙色支持该预测，蓝色反对。',
  'evidence-integrated-note': '该词元对 log P 的贡献。橙色支持该预测，蓝色反对。', 'evidence-pooling-note': '该词元在分类器池化中的权重。',
  tagsTitle: '标签', tagsNote: '小字为各标签的概率；整个标签序列的概率为 {p}。', tagHint: '点击一个词，查看它的其他标签和依据。', span: '片段', label: '标签',
  tagsOfWord: '“{word}”的标签', marginalsTitle: '边缘概率', marginalsNote: '给定整个文本时，每个词取各标签的概率。低于 0.5% 的标签未显示。',
  segmentsTitle: '分词结果', fillsTitle: '最可能的填法', fillsNote: '所有空的联合概率。',
  // 透视
  lookIntro: '循环网络读文本时内部发生了什么。', show: '显示', 'show-gates': '门与状态', 'show-surprisal': '意外程度', 'show-connectivity': '词元影响', 'show-gradient': '随时间的梯度', 'show-posterior': '隐状态',
  'show-gates-note': '每个单元在每个词元处的值。选一个单元，查看什么会激活它。', 'show-surprisal-note': '每个词元有多出乎意料。', 'show-connectivity-note': '哪些词元影响一个预测：把指针移到它上面。',
  'show-gradient-note': '一个预测的梯度有多少能传到之前的每一步。', 'show-posterior-note': '每个词元处各隐状态的概率。', noProbes: '这个模型没有可查看的内部结构',
  layer: '层', part: '门或状态', unit: '单元', gateName: '门 {name}', stateName: '状态 {name}', layerNumber: '第 {n} 层', forward: '正向', backward: '反向', gateTitle: '{where}的 {part}（{cell}）',
  gateNote: '行是单元，列是词元。点击一行选中该单元；方向键移动指针。', unitTitle: '单元 {unit}：{where}的 {part}', unitHint: '在图中或按编号选一个单元。',
  passagesTitle: '最能激活单元 {unit} 的片段', passagesNote: '在 {n} 个词元中的隐状态，最强的在前。', passage: '片段', corpus: '搜索的文本', heldOut: '该运行的留出数据',
  notPredicted: '未预测', contextLeft: '每个词元由它之前的词元预测。', contextBoth: '每个词元由其余所有词元预测。',
  influenceTitle: '对预测“{what}”的影响', gradientTitle: '“{what}”的损失的梯度', pointHint: '指向一个词元，其余词元显示各自对它的影响；点击可固定。', pickHint: '指向一个预测，词元显示各自对它的影响。',
  predictions: '预测', norm: '范数', 'method-gradient': '梯度范数', 'method-integrated': '积分梯度', gradientOf: '对什么求梯度', gradientCurve: '每一步的范数', gradientNote: '对数坐标。向左下降表示梯度消失。',
  transitionsTitle: '转移', transitionsNote: '从行到列。', emissionsTitle: '各状态最可能的词元', logLikelihood: '文本的对数似然：{value}',
  // 训练
  learnIntro: '文件夹中各次运行的训练曲线，训练时实时更新。', run: '运行', state: '状态', task: '任务', data: '数据', best: '最佳', weights: '参数量', changed: '更新时间', curves: '曲线',
  'state-training': '训练中', 'state-done': '已完成', 'state-started': '已开始', justNow: '刚刚', minutesAgo: '{n} 分钟前', hoursAgo: '{n} 小时前', daysAgo: '{n} 天前', inTraining: '{run}，训练数据',
  quality: '损失与指标', optimization: '优化过程', noCurves: '还没有数据', chooseRuns: '请在上方选择运行', live: '有运行正在训练，曲线实时更新。', notLive: '目前没有正在训练的运行。', logScale: '对数坐标',
  noRunsFolder: '没有指定运行文件夹', noRunsHint: '启动服务器时指定文件夹：', noRuns: '还没有运行', noRunsYet: '训练一开始就会显示在这里。',
  // 对比
  compareIntro: '两次运行读同一段文本。', firstRun: '第一个运行', secondRun: '第二个运行', surprisalOf: '意外程度：{run}', meanNats: '平均 {nats} 奈特', differenceTitle: '意外程度之差',
  differenceNote: '{first} 减 {second}。橙色：{second} 预测得更好；蓝色：{first} 更好。', otherTokens: '两个运行的分词不同，无法逐词元比较。', sameAnswer: '两者结果相同。', otherAnswer: '两者结果不同。',
  settingsTitle: '指标与不同的设置', bestOf: '留出数据上的最佳 {metric}', oneRun: '只有一个运行', oneRunHint: '同时启动两个即可对比：', nothingCommon: '两个运行没有共同的任务，只能比较设置。',
};
