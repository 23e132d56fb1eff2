"""The server: trained models behind an HTTP API that existing clients speak, and a page.

program.py       runs uvicorn; signals
app.py           routes, checks, errors
http.py          one request: body, time limit, a client that goes away
worker.py        the thread of a model: requests that wait are answered together
generation.py    sequences that are being generated, together
sessions.py      texts that grow over several requests
comparison.py    paired tests of two models, in a thread of their own
openai_api.py, ollama_api.py, hugging_face_api.py, libretranslate_api.py, native_api.py    the endpoints
refused_api.py   calls of clients that have no meaning here
schema.py        requests as JSON schemas, which also stand in /openapi.json

What a model can do is said by its operations (`weft.tasks.operation`), not here.
"""
