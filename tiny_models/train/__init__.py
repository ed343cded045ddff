"""How the small trained qwen35 model was made: corpus, tokenizer, network, training, export, evaluation.

Owns nothing at run time: the engine reads only the GGUF file beside this package. Needs torch, tokenizers, gguf and,
for the corpus, Debian's `apt-get` and `dpkg`.
"""
