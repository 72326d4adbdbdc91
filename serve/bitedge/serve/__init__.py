"""The service: images in, classes out, over HTTP.

Importing this package loads nothing heavy; `bitedge.serve.app.create_app` builds the application,
`bitedge.serve.server.serve` runs it,
`bitedge.serve.inference.preprocessing.load_image` is the decoder alone (Pillow only).
"""
