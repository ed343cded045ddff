"""How the small trained qwen35 model was made: corpus, tokenizer, network, training, export, evaluation.

Owns nothing at run time: the engine reads only the GGUF file in `tiny_models/trained`. Needs torch, tokenizers, gguf
and, for the corpus, Debian 12's `apt-get` and `dpkg`. From an empty folder DIR to a file like the one that is kept:

    python -m tiny_models.train.data --work DIR
    python -m tiny_models.train.train --ids DIR/ids --out DIR/run --steps 7207
    python -m tiny_models.train.export --run DIR/run --tokenizer DIR/tokenizer.json --out MODEL.gguf
    python -m tiny_models.train.evaluate --run DIR/run --ids DIR/ids --device cuda --prompts 64
"""
