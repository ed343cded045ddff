"""Models: from metadata to a configuration, and from that to the commands of a step.

There is no file per architecture: what differs is in `config.ARCHITECTURES` and in which tensors a file has.
"""
