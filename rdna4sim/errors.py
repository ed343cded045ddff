"""What can be wrong with a file or a request; each message is one line for a person."""


class SimError(Exception):
    """Anything that rdna4sim refuses, with the reason in one line."""


class BadFile(SimError):
    """The file is not a code object that can be read: it names the file's offence."""


class Unsupported(SimError):
    """An instruction or a modifier that is not translated: it names the instruction and its address."""
