"""A fuzzer of models that are accepted: odd but legal files, and what must hold for each of them.

case.py draws what a file and its use are like, model.py writes the file, vocabularies.py its tokenizer, checks.py runs
the engine and the commands on it, campaign.py does that in children with bounds and reduces what was found.
`scripts/fuzz_models.py` is the command line.
"""
