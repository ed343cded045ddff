"""The lookup grids of the IQ tensor types. scripts/make_iq_grids.py writes the data: do not edit that.

Owns: the six grids (IQ1_M shares that of IQ1_S), packed 2 or 3 bits a component, and their C form.
Does not own what an index into a grid means: that is ``ie/formats/``.
"""

import base64
from functools import cache

import numpy as np
import numpy.typing as npt

# name: (rows, columns, component values in code order, packed codes: base64, least significant bit first)
_PACKED: dict[str, tuple[int, int, tuple[int, ...], str]] = {
    "IQ2_XXS": (
        256,
        8,
        (8, 25, 43),
        (
            "AAACAAUACAAKABEAFAAgACIAKAAqAEEARABQAFgAYQBkAIAAggCKAKIAAQEEARABFQFAAYQBmAEAAgICIgKCAgEEBAQQBCEEJARABEIE"
            "SARgBIEEhASQBKQEAAUCBQgFIAVGBWkFgAWRBQkGEAZABoQGpAYACAUICAgUCCgIQQhECFAIUgiICAQJQAkCChQKARAEEBAQIRBAEGAQ"
            "hBCQEJUQABEIESARUBFaEYARJBJFEgAUCBQgFCUUSRSAFBgVYhUAFhYWARgEGBAYQBiBGAAZBRmgGVEaACACIAogRCBhIIAggiApIUgh"
            "ACICIgEkBCQQJEAkViQAJUElZCWQJggoICiUKEQqAUAEQBBAGEAhQCRAQEBIQFZAYECBQIRAkEAAQSBBYUGAQYVBAUIQQkhCVkJoQgBE"
            "CEQgRIBEmUQSRSRFAEYBSARIEEhASEVIAElYSWFJgklFSpBKAFAIUBFQGVAgUIBQiFAEUUJRpFGRUpBUklQKVQFWVFYAWBFYGVhkWEBZ"
            "CFoEYBBgQGBoYABhVWEYYmBiAGQFZBBlEmWEZUJoAIACgAqAQYCCgASBGIFAgRGCAYQEhBCEFYRAhGCEAIVGhZSFCYZAhmCGAogEiRGK"
            "BJAQkCSQQJChkBaRgJFFkgCUIpRElFGVgZggmQKgUKCFoAmhAKIYpFCoBKk="
        ),
    ),
    "IQ2_XS": (
        512,
        8,
        (8, 25, 43),
        (
            "AAACAAUACAAKABEAFAAWABkAIAAiACUAKABBAEQARgBJAFAAUgBVAFgAYQBkAIAAggCFAIgAkQCUAJkAoAABAQQBBgEJARABEgEVARgB"
            "GgEhASQBQAFCAUUBSAFRAVQBYAFoAYEBhAGQAQACAgIFAggCEQIUAiACQQJEAlACVQKAAooCAQQEBAYECQQQBBIEFQQYBCEEJARABEIE"
            "RQRIBFEEVARWBGAEgQSEBJAEAAUCBQUFCAURBRQFIAVBBUQFUAVhBYAFAQYEBhAGJgZABkIGhAYACAIIBQgICAoIEQgUCCAIJQhBCEQI"
            "UAhYCIAIoAiqCAEJBAkQCUAJgQmJCQAKIAooCpYKoAoBEAQQBhAJEBAQEhAVEBgQIRAkEEAQQhBFEEgQURBUEGAQahCBEIQQkBAAEQIR"
            "BREIERERFBEgEUERRBFQEYARlBGWEQESBBIGEhASQBJgEgAUAhQFFAgUERQUFCAUQRREFEkUUBRkFIAUARUEFRAVQBUAFhQWSRYBGAQY"
            "EBgSGEAYVBiGGAAZBRlmGVEaqRoAIAIgBSAIIAogESAUICAgQSBEIFAggCCgIAEhBCEQIUAhSCFlIQAiIiKAIqgiASQEJBAkKSRAJAAl"
            "QSVSJZklASYaJqYmACgIKAooIChVKIgooihoKZApCCogKoIqiCqKKgFABEAGQAlAEEASQBVAGEAhQCRAQEBCQEVASEBKQFFAVEBgQGVA"
            "gUCEQJBAAEECQQVBCEERQRRBIEFBQURBUEGAQYVBokEBQgRCEEISQilCQEIARAJEBUQIRBFEFEQZRCBEQURERFBEgESURAFFBEUQRSRF"
            "QEWaRQBGCkZERlBGAUgESBBIQEhFSFRIYkgASRFJRElQSWlJBEoAUAJQBVAIUBFQFFAgUChQQVBEUFBQgFABUQRREFEVUUBRQlEAUkRS"
            "qlIBVARUEFQhVEBUYFSBVKFUAFUIVYBViFUhVmhWoVYAWBRYQVhQWJlYGllAWUJZhVoBYARgEGBAYFRgYmCGYKlgAGEkYkpikmIAZBZk"
            "EGVAZUVlpGUBaGpoJWkGalRqYmoAgAKABYAIgBGAFIAggCqAQYBEgFCAgICCgKiAqoABgQSBBoEQgUCBUYFZgQCCIIKAgoKCoIKoggGE"
            "BIQQhBKEFYRAhGCEiYQAhUSFpYUYhmqGAIgIiCWIWoiAiIKIqIgGiSKKgIqIipaKqIoBkASQEJBAkFaQhJAAkSKRZJFWkomSAJQFlESU"
            "UJRYlCmVkJWSlUGWUZimmEmZFZpgmgCgAqAIoAqgIKAqoKCgUaFZoaahAKICogiiKqKAoqCiQKSVpGWmmKYKqCCoIqgoqKCoqKgEqYSp"
            "hqkoqiqqkaqqqg=="
        ),
    ),
    "IQ2_S": (
        1024,
        8,
        (8, 25, 43),
        (
            "AAACAAUACAAKABEAFAAWABkAIAAiACUAKABBAEQARgBJAFAAUgBVAFgAYQBkAGYAaQCAAIIAhQCIAJEAlACgAKUAqgABAQQBBgEJARAB"
            "EgEVARgBIQEkAUABQgFFAUgBUQFUAVYBWQFgAWUBaAGBAYQBkAGSAZUBoQGkAQACAgIFAggCEQIUAiACKgJBAkQCRgJJAlACVQKAAoUC"
            "igKUAqICAQQEBAYECQQQBBIEFQQYBCEEJAQmBCkEQARCBEUESARKBFEEVARWBFkEYARiBGUEgQSEBIYEiQSQBJUEmAShBKQEAAUCBQUF"
            "CAUKBREFFAUWBRkFIAUlBSgFQQVEBUYFSQVQBVIFVQVYBWEFZAWABYIFhQWIBZEFlAWgBQEGBAYGBgkGEAYVBkAGRQZIBlEGVAZgBoEG"
            "hAaQBgAIAggFCAgIEQgUCBYIGQggCCUIKghBCEQIRghJCFAIUghVCFgIYQhkCIAIhQiUCKoIAQkECRAJEgkVCRgJIQlACUUJSAlRCVQJ"
            "YAmBCZAJAAoRChQKIgooCioKUAqZCgEQBBAGEAkQEBASEBUQGBAhECQQJhBAEEIQRRBIEFEQVBBWEFkQYBBiEGUQaBCBEIQQhhCQEJUQ"
            "mBChEKQQABECEQURCBEKERERFBEWERkRIBEiESURKBFBEUQRRhFJEVARUhFVEVgRYRFkEYARghGFEYgRkRGUEQESBBIJEhASFRIhEiQS"
            "QBJFElESVBKBEoQSkBIAFAIUBRQIFBEUFBQWFBkUIBQlFCgUQRREFEYUSRRQFFIUVRRYFGEUZBSAFIIUhRSIFJEUlBSgFAEVBBUGFQkV"
            "EBUSFRUVGBUhFSQVQBVCFUUVSBVRFVQVYBWBFYQVkBUAFgUWCBYRFhQWIBZBFkQWUBaAFqoWARgEGAYYCRgQGBUYGBghGEAYQhhFGEgY"
            "URhUGGAYgRiEGAAZAhkFGQgZERkUGSAZQRlEGVAZaRmiGQQaEBpAGlYaACACIAUgCCARIBQgFiAZICAgJSAqIEEgRCBQIFIgVSBkIIAg"
            "iiCUIKogASEEIRAhEiEVISEhQCFCIUUhUSFUIWAhgSGEIZAhACIKIiIiKCIqIkQiUCKIIooiqCIBJAQkBiQJJBAkFSQYJCEkJCRAJEIk"
            "RSRIJFEkVCRgJIEkhCSQJAAlBSUIJRElFCUgJUElRCVQJWYlgCUBJgQmECZAJlkmACgFKBEoFChBKEQoUCiKKKooASkEKRAplSkKKiIq"
            "ZCqIKooqAUAEQAZACUAQQBJAFUAYQBpAIUAkQCZAQEBCQEVASEBKQFFAVEBWQFlAYEBiQGVAgUCEQJBAlUCYQKFApEAAQQJBBUEIQRFB"
            "FEEWQRlBIEEiQSVBQUFEQUZBSUFQQVJBVUFYQWFBZEGAQYJBhUGIQZFBlEGgQQFCBEIQQhJCFUIYQiRCQEJFQkhCUUJUQmBCgUKEQgBE"
            "AkQFRAhECkQRRBREFkQZRCBEIkQlRChEQUREREZESURQRFJEVURYRGFEZESARIJEhUSIRJFElESgRAFFBEUGRQlFEEUSRRVFGEUhRSRF"
            "QEVCRUVFSEVRRVRFYEVqRYFFhEWQRQBGAkYFRghGEUYURiBGQUZERlBGgEalRgFIBEgJSBBIEkgVSBhIIUgkSEBIQkhFSEhIUUhUSGBI"
            "hEiQSABJAkkFSQhJEUkUSSBJQUlESVBJgEmWSQFKBEoQSkBKAFACUAVQCFARUBRQFlAZUCBQIlAlUChQQVBEUEZQSVBQUFJQVVBYUGFQ"
            "ZFCAUIJQhVCIUJFQlFABUQRRBlEJURBRElEVURhRIVEkUUBRQlFFUUhRUVFUUWBRgVGEUZBRAFIFUghSEVIUUiBSQVJEUlBSaVKAUgFU"
            "BFQGVAlUEFQSVBVUGFQhVCRUQFRCVEVUSFRRVFRUYFSBVIRUkFQAVQJVBVUIVRFVFFUgVUFVRFVQVYBVAVYEVhBWJlZAVgBYAlgFWAhY"
            "EVgUWCBYQVhEWFBYWliAWAFZBFkQWUBZAFoZWoVaqFoBYARgBmAQYBJgFWAYYCFgJGBAYEVgSGBRYFRgYGCEYJBgAGECYQVhCGERYRRh"
            "IGFBYURhUGGAYZlhBGIQYkBiVmKhYgBkBWQIZBFkFGQgZEFkRGRQZIBkAWUEZRBlQGVKZWhlkmUAZpRmAWgEaBBoZWiYaABpKmlCaqFq"
            "AIACgAWACIARgBSAGYAggCWAQYBEgFCAUoBVgFiAYYCAgIWAkYCUgAGBBIEJgRCBEoEVgRiBIYEkgUCBQoFFgUiBUYFUgYGBhIGQgamB"
            "AIIFggqCEYIUgkGCRIJQggGEBIQGhAmEEIQShBWEGIQhhECEQoRFhEiEUYRUhGCEgYSEhJCEAIUChQWFCIURhRSFIIVBhUSFUIWAhYqF"
            "AYYEhhCGKYZAhgCIBYgRiBSIQYhEiFCIoogBiQSJQIlliSKKWIpaioKKoooBkASQCZAQkBKQFZAYkCSQQJBCkEWQSJBRkFSQYJCBkISQ"
            "kJAAkQWREZEUkUGRRJFQkVqRAZIEkhCSQJKmkgCUApQFlAiUEZQUlCCUQZRElFCUgJSWlAGVBJUQlUCVmJWhlQCWRpZklgGYBJgQmCaY"
            "QJipmACZSZlSmZCaAKAFoAqgFKAioCqgQaBEoFCgoqCqoEChZaECogqiIqIooiqigqKIooqiqKIBpASkEKRApImkpKQApRmlUaYKqCio"
            "oqhUqYapCKoKqiCqIqooqoiqqqo="
        ),
    ),
    "IQ3_XXS": (
        256,
        4,
        (4, 12, 20, 28, 36, 44, 52, 62),
        (
            "ACAABJAAC/AAECABGSACO9ADQTAESKAEUVAFWKAFYcAGeAAIgkAIiQAJkpAJm/AJqfAKvRAMx4AMylAN+LAQH0ESL7ETPREUR6EVatEZ"
            "tIEczOEc4xEfATIgCKIgETIhGKIhHHIiKAIkQpIkUCIlgTIoiKIokYIpugIswgIt2WIu9hIwBYMyUEM1ZpM3hSM94ANAApRACwRBEmRB"
            "GSRCQTRERYREShRFWDRHd4RHgCRIifRIkCRJnwRKrRRMyMRM+MRPHbVSQ3VVYcVXwTVczlVeAYZgChZhE4ZiNaZjQCZkUJZlZGZmgTZo"
            "iFZpqqZrybZtGHdyOgd0Rid1bcd4njd72wd/BPiAHfiBK/iCfAiJnwiKsGiLx1iOBJmSNFmVY4mXxYmcyomdChqiOAqkRmqlbcqomqqr"
            "wrquCDuxF6uzQpu1qEu94kvBJGzCNBzFcfzItIzN3kzSRa3Wmz3c0T3gBX7gCK7hKm7lYK7opa7qwN7s2w7vER/yQC/0VI/5"
        ),
    ),
    "IQ3_S": (
        512,
        4,
        (1, 3, 5, 7, 9, 11, 13, 15),
        (
            "ABAAAlAAB4AACaAADOAAEBABFbABICACJXACKbACMCADOcADPwAEQSAERIAESdAEUDAFV5AFXUAGcVAHegAIgVAIh4AIi+AIkVAJmMAJ"
            "olAKp5AKq4ALuzAMydAM0CAN2bAN3kAO6KAO95AP/QAQC/EQEUERGgESI5ESOCEURAEVUmEVWxEWZXEWdrEXhpEYi5EZqpEbwCEcxAEd"
            "0mEd24Ee7AEgASIgBIIgCbIgDfIgECIhGcIhHsIiLhIjOgIkQTIkRoIkTBIlWLIlYYImaoInfgIoitIojwIplKIpoDIqrQIruhIsxHIs"
            "yLIs0XIt2MIt4SIv+DIwBaMwDJMxGyMyJoMyLBM0SLM0UYM1WpM2kEM5l0M6phM8w4M8yhM93RM+8oM/ABRAA1RAB4RACsRADhRBE3RB"
            "GKRBITRCJYRCKnRDOLRDPQREQoRES/REUlRFWcRFYpRGgURIhxRJk4RJnxRKq/RKucRLwCRMxZRM0kRN2bRN4oRO9hRQBwVRE6VRHRVS"
            "OtVTRJVUUvVVYLVWeAVYgnVYkdVasVVcyWVd2DVe6CVgCbZgDfZgEpZhG9ZhIkZiJ5ZiM5ZjQTZkRcZkUTZlYAZneuZngKZokKZpnIZq"
            "wYZszBZt03Zt2BZu43Zu7bZvA5dwDidxGadyMEdzQYd0Sld1Wkd2brd3jhd6wTd80Cd93QeABKiAEEiBF6iBIYiCOCiER5iESyiFWNiF"
            "Y5iGbRiIg4iIjRiJmwiKryiLuEiMybiM0CiN2diNACmQFPmRIJmTRXmUUSmXi8mZsImczYmd45meAoqgDCqhIEqiJ6qiNsqjQTqkRaqk"
            "UaqlegqoiTqpmOqpqyqsx4qs10qu6Vqv+xqwBAuxGmuySmu1abu2oiu8xCu9CbzADZzBGwzDQAzFV0zHiszJotzKsozLwMzM0QzOFT3S"
            "Mg3UQ83VcF3YoJ3cyw3gBH7gEC7hHg7iLC7jQp7kVD7mZR7ohI7ojh7pmJ7qwq7t3b7uAV/wCw/xKC/1Yi/4mQ/8"
        ),
    ),
    "IQ1_S": (
        2048,
        8,
        (-1, 0, 1),
        (
            "AAACAAUACAAKABEAFQAgACIAKAAqAEUAUQBUAFYAZQCAAIIAiACKAJUAoACiAKgAqgAEAQUBEQEUARYBGQEaASUBQQFGAUkBUgFVAVoB"
            "YQFkAWYBaAGFAZEBlAGWAaUBAAICAggCCgIVAiACIgIoAioCRQJRAlkCZAJpAoACggKIAooCkQKVApkCoAKiAqgCqgIRBBQEFgQlBEEE"
            "SQRVBFoEZARlBJEEmQSlBAEFBAUFBQYFFQUYBRoFKQVABUUFSgVQBVEFVAVVBVYFWQVgBWIFZQVoBWoFgQWRBZUFmAWaBaEFpAWlBaYF"
            "qQUUBhkGQQZEBlAGUgZVBlgGYAZhBmYGaQaFBpEGlAaZBgAIAggICAoIFQggCCIIKAgqCEUIUQhWCGUIgAiCCIgIigiVCKAIogioCKoI"
            "BQkRCRQJGQkkCSUJQQlQCVEJVQlhCWQJaQmRCZQJlgmZCaUJAAoCCggKCgoVCiAKIgooCioKRQpRClkKYQplCoAKggqFCogKigqVCqAK"
            "ogqoCqoKEBAREBQQGRAkECUQQRBEEFAQVRBYEGEQZBBlEGkQkRCUEJYQoRClEAERBBEGEQkREBESERURGBEhESQRKRFFEUoRUBFREVIR"
            "VBFVEVYRWRFgEWURhBGSEZURoRGkERESFBIWEiUSQBJGEkkSUhJVElgSWhJkEmYShRKREpQSlhKlEgEUBhQJFBQUFRQYFBkUIRQmFEEU"
            "RRRGFEgUShRRFFQUVRRWFFkUYhRlFGgUhBSJFJAUlBSVFJgUmRSaFKEUpBSlFKkUAhUFFQoVERUUFRUVFhUZFSAVIhUlFSgVKhVBFUQV"
            "RRVGFVEVUhVUFVUVVhVZFVoVYRVkFWUVZhVpFYAVghWEFYUViBWKFZAVkRWUFZUVlhWZFZoVoBWiFaUVARYEFgUWBhYVFhYWGBYaFiEW"
            "JhZAFkIWRBZFFkgWShZRFlUWVhZYFlkWYRZkFmUWaBZpFmoWhhaKFpIWlRakFqkWERgWGCUYQRhEGEYYSRhQGFUYWBhaGGAYYRhkGGYY"
            "aRiFGJEYlBilGBAZEhkVGRoZIRklGUIZRBlFGUgZURlUGVUZVhlZGVoZYBllGWoZiRmRGZIZlRmYGaEZphmpGQkaFhokGiYaRBpGGkka"
            "UBpSGlUaWBphGmYaaRqFGpEalhqaGgAgAiAIIAogFSAgICIgJSAoICogRSBRIFkgYSBlIIAggiCIIIoglSCgIKIgpSCoIKogBSERIRQh"
            "GSElIUIhRCFJIVUhWCFaIWEhZCFlIWYhhSGQIZYhmSGlIQEiCCIKIhEiFSIgIiIiKCIqIkUiUSJWIlkiZSKBIogiiiKRIpUioCKiIqgi"
            "qiIFJBQkFiQZJCUkRCRFJEYkSSRSJFUkWCRaJGYkhSSRJJQkmSShJKUkCSUVJSElKSVAJUUlSCVRJVQlVSVZJWIlZSVoJYklkCWUJZUl"
            "mCWaJaElpCWmJaklBSYQJhImGSYlJkEmSSZVJmAmYSZpJoQmhiaQJpomACgCKAgoCigVKCAoIigoKCooRShRKFQoZSiAKIIoiCiKKKAo"
            "oiioKKooCSkRKRQpGSklKUYpSSlSKVUpYSlkKWYpaSmFKZAplimZKaQppSkAKgIqCCoKKiAqIiooKioqRSpRKlYqWSplKoAqgiqIKooq"
            "lSqgKqIqqCqqKgVAEUAWQCVASUBSQFVAWEBaQGFAZEBmQJRAmUChQKZAAEEBQQRBBkEJQRJBFUEWQRhBGkEhQSZBKUFFQUhBSkFRQVRB"
            "VUFWQVlBWkFlQWhBakGBQYRBhkGQQZJBlUGgQaFBokEFQhFCFEIWQiVCQUJSQlVCWkJkQmlCiUKUQqVCAUQVRBlEKURFREhESkRRRFRE"
            "VURWRGFEYkRlRGhEakSBRIZEiUSQRJJElUSgRKFEqUQBRQJFBUUKRRFFFEUVRRZFGUUgRSVFKkVBRURFRUVGRUlFUEVRRVRFVUVWRVhF"
            "WUVhRWRFZUVmRWlFgkWERYVFiEWRRZRFlUWWRZlFmkWlRahFqkUBRgVGCUYURhVGGEYaRiFGJEYpRkBGQkZFRkhGUEZRRlJGVUZWRllG"
            "YkZlRmhGgUaFRopGlEaVRqFGpEamRgVIEUgVSBpIJUhCSElIUEhVSFhIYUhkSGZIaUiFSJFIlEiWSJlIpUgBSQVJBkkKSRBJFEkVSRhJ"
            "IUkkSSZJQElFSUpJUUlSSVRJVUlWSVlJYEliSWVJZklqSYZJiUmSSZVJlkmYSaFJpEmmSalJFkpESkZKSUpVSlhKWkpkSmlKlEqlSgFQ"
            "BFAFUAZQCVASUBVQGlAhUCRQKVBAUEVQSFBRUFRQVVBWUFlQZVBoUIZQiVCVUJhQoFChUKZQqVAFUQhRCVEKURFRFFEVURZRGFEZUSBR"
            "JVEmUShRKlFBUURRRVFGUUlRUFFRUVJRVFFVUVZRWFFZUVpRYVFkUWVRZlFpUYJRhVGRUZRRlVGWUZlRoFGlUapRAVIGUhJSFVIaUiFS"
            "JFJCUkVSSlJRUlRSVVJWUllSYlJlUoVSkFKSUpVSmVKaUqRSBFQFVBFUFFQVVBZUGFQZVCFUJVQoVCpUQVREVEVURlRJVEpUUFRRVFRU"
            "VVRWVFhUWVRaVGFUYlRkVGVUZlRpVIBUiFSKVJFUlFSVVJZUmVShVKRUpVSqVAFVAlUEVQVVBlUJVRBVEVUSVRRVFVUWVRlVGlUhVSRV"
            "JVUmVSlVQFVBVUJVRFVFVUZVSFVJVVBVUVVSVVRVVVVWVVhVWVVaVWBVYVVkVWVVZlVoVWlValWBVYRVhVWJVYpVkFWRVZRVlVWWVZhV"
            "mVWhVaRVpVWmValVAFYBVgJWBFYGVghWCVYRVhRWFVYYVhlWIFYhViJWJFYlViZWKFYpVkFWRVZGVkhWSVZKVlBWUVZSVlRWVVZWVlhW"
            "WVZaVmFWZFZlVmlWglaFVoZWiFaJVopWkVaVVppWolalVqZWqFapVgRYBVgGWAlYEFgVWBhYIVgqWEVYSFhKWFFYVFhVWFZYWFhZWGBY"
            "YlhkWGVYgliJWJBYkliVWJhYoVipWAFZAlkFWQpZEVkUWRVZFlkZWSVZQVlEWUVZRllJWVBZUVlSWVRZVVlWWVhZWVlaWWFZZFllWWZZ"
            "aVmBWYVZiVmRWZRZlVmWWZhZmVmlWQRaCFoVWhpaIFolWiZaKVpFWkhaSVpRWlVaVlpYWllaYlplWmhaalqBWopaklqVWpZamFqaWqFa"
            "BWAUYBZgGWAlYERgUGBVYFZgWGBaYGFgZGBmYGlggWCWYKVgAWEEYQZhCWESYRVhIWEiYSZhKWFFYUlhUWFVYVZhWWFlYWZhamGEYYph"
            "kmGVYaFhpmGpYRFiFmIZYkBiQWJGYlViVmJYYmBihWKRYpZipWIRZBJkFWQWZBpkIWQmZClkQGRCZEVkSGRKZFFkVGRVZFZkWWRaZGBk"
            "YmRlZIRkhWSJZJBkkmSUZJVklmSYZJpkoWSkZKlkBWUIZQplEWUVZRZlGWVEZUVlRmVJZVBlUWVUZVVlVmVZZWFlZGVlZWZlaWWGZYll"
            "imWRZZVllmWZZZplomWlZaZlqGUCZglmFWYgZiZmKGYpZkBmRWZIZkpmUWZUZlVmVmZYZlpmYGZlZmhmgGaCZoVmimaUZpZmmGaZZqBm"
            "pGamZqpmFmgZaCVoQWhSaFVoWmhhaGlohWiRaJhopmgBaQRpEGkVaSFpJGkmaSlpQGlBaUVpRmlIaVFpVGlVaVZpWWlgaWVpammCaYRp"
            "immVaaFppGmlaalpEWoWahhqQWpEaklqUGpValhqWmpkamVqaWqGapRqmGqaaqZqAIACgAiACoAggCKAKIAqgEWAUIBRgFSAVoBZgGWA"
            "gICCgIiAioCVgKCAooCogKqABYERgRSBFoEZgSWBQYFEgUmBUIFSgVWBVoFYgVmBZIFmgWmBhYGJgZSBloGZgaWBAIICggiCCoIVgiCC"
            "IoIogiqCUYJUglmCZYKAgoKCiIKKgpWCoIKigqiCqoIUhBmEQYREhFGEVYRahGGEZIRphJSEmYQBhQmFEoUVhRqFJoUphUCFQYVFhUiF"
            "UYVUhVWFVoVZhVqFZYVmhWiFaoWBhYSFhoWJhZCFkoWVhZiFpoURhhaGGYYlhkGGRIZJhkqGUIZVhlmGWoZhhmaGaoaFhpGGmoakhgCI"
            "AogIiAqIFYggiCKIKIgqiEGIRYhRiFSIWYhliGmIgIiCiIiIioiViKCIooioiKqIBYkGiRGJFIkWiSWJQYlEiUaJSYlQiVKJVYlaiWGJ"
            "ZImFiZaJmYmliQCKAooIigqKFYogiiKKKIoqikWKUYpUilaKgIqCioiKioqViqCKooqoiqqKBZARkBaQGJAZkCWQQZBGkEmQVZBYkFqQ"
            "aZBqkIWQkZCUkJaQmZClkAGRBJEGkQmREJEVkRiRGpEhkSSRJpEpkUCRRZFQkVGRVJFVkVaRWZFikWWRhJGGkZKRlZGYkaGRpJGmkamR"
            "BZIRkhSSGZIlkkSSRpJJklCSUpJVkliSZpJpkoWSlJKWkqmSAZQElAaUEJQVlBiUJpRAlEqUUZRUlFWUVpRYlFmUYJRhlGKUZZSElIaU"
            "kpSUlJWUmJShlKmUAJUFlQiVCpUQlRGVFJUVlRaVGZUhlSWVKZUqlUGVRJVFlUaVSZVQlVGVUpVUlVWVVpVYlVmVWpVhlWSVZZVmlWmV"
            "gZWFlYiVkZWSlZSVlZWWlZmVmpWglaKVpZWolaqVAZYElhCWFZYZliCWJpYplkWWSJZJllGWUpZVllaWWZZllmiWgpaElomWipaSlpSW"
            "lZaklqaWqZYFmBaYGZglmEGYRphQmFKYVZhWmFqYZJhlmIWYkZiWmJmYpZgEmQaZCZkQmRKZFZkYmRqZIJkhmSSZJplAmUKZRZlImUqZ"
            "UZlUmVWZVplZmWKZZZlmmWqZgZmEmZCZkpmVmZqZoZmmmQWaFZolmkSaRppJmlCaVZpYmmGahZqRmpSalZqWmgCgAqAIoAqgFaAgoCKg"
            "KKAqoEWgUaBUoFagWaCAoIKgiKCKoJWgoKCioKigqqAFoQmhEaEUoRahGaEaoUahSaFRoVWhWKFaoWGhZKGFoZChkqGWoZmhAqIIogqi"
            "EKIZoiKiKKIqokWiUaJWolmiZaKAooKiiKKKopWioKKioqiiqqIZpCWkQaREpFCkVKRVpFikWqRhpGWkZqRopGmkhaQGpQmlEKUSpRWl"
            "GKUmpSmlQqVFpVGlVKVVpValWaVlpWqlgaWEpYWlhqWJpZKllaWYpQWmEaYWphqmIaYlpkSmRqZKplKmVaZWplimYKZipoamkKaVppam"
            "maahpqSmpqYAqAKoCKgKqCCoIqgoqCqoUahUqFaoWaiAqIKoiKiKqJWooKiiqKioqqgFqRSpGakhqSWpQalQqVWpWqlhqWapaamQqZap"
            "AKoCqgiqCqogqiKqKKoqqlGqVKpWqoCqgqqIqoqqlaqgqqKqqKqqqg=="
        ),
    ),
}

NAMES: tuple[str, ...] = tuple(_PACKED)


@cache
def grid(name: str) -> npt.NDArray[np.int8]:
    """The grid of one type as int8 [rows, columns], read-only. ``name`` is one of ``NAMES``."""
    rows, columns, values, text = _PACKED[name]
    width = 2 if len(values) <= 4 else 3
    bits = np.unpackbits(np.frombuffer(base64.b64decode(text), dtype=np.uint8), bitorder="little")
    places = np.left_shift(1, np.arange(width)).astype(np.uint8)
    codes = (bits[: rows * columns * width].reshape(-1, width) * places).sum(axis=-1)
    out: npt.NDArray[np.int8] = np.array(values, dtype=np.int8)[codes].reshape(rows, columns)
    out.flags.writeable = False
    return out


def codes(name: str) -> npt.NDArray[np.uint16]:
    """Each row of a grid of IQ2 or IQ3 in 16 bits, for processors that look 16 bits up at once.

    Nibble n of these four holds byte n of the row's word: at bits 0, 8, 4, 12, so that a row's 16 bits beside the same
    16 bits shifted right by 4 are four bytes with a nibble at the bottom of each. Of rows of 4 (8 values) a nibble is
    the value's place v in their list; of rows of 8 (3 values) it is v + 3 w, w the place of the value four columns on.
    """
    rows, columns, values, _ = _PACKED[name]
    places = np.searchsorted(np.array(values), grid(name)).astype(np.uint16)
    nibbles = places if columns == 4 else places[:, :4] + 3 * places[:, 4:]
    shifts = np.array([0, 8, 4, 12], dtype=np.uint16)
    out: npt.NDArray[np.uint16] = (nibbles << shifts).sum(axis=-1).astype(np.uint16)
    assert out.shape == (rows,)
    return out


CODED = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")
"""Grids that have a form in 16 bits."""


def c_header() -> str:
    """The text of kernels_c/include/iq_grids.h: each grid as ``ie_grid_<name>[rows][columns]``."""
    lines = []
    for name in NAMES:
        values = grid(name)
        rows = ["{" + ",".join(str(int(v)) for v in row) + "}" for row in values]
        declared = f"int8_t ie_grid_{name.lower()}[{values.shape[0]}][{values.shape[1]}]"
        lines += _table(declared, rows, 48 // values.shape[1])
    what = "The lookup grids of the IQ tensor types. Written from ie/formats/iq_grids.py (c_header)"
    return _header("IQ_GRIDS", what, lines)


def codes_header() -> str:
    """The text of kernels_c/include/iq_codes.h: ``ie_codes_<name>[rows]`` of each grid that has them."""
    lines = []
    for name in CODED:
        words = [f"0x{int(w):04X}" for w in codes(name)]
        lines += _table(f"uint16_t ie_codes_{name.lower()}[{len(words)}]", words, 16)
    return _header("IQ_CODES", "Grids in 16 bits a row. Written from ie/formats/iq_grids.py (codes_header)", lines)


def _table(declared: str, values: list[str], per_line: int) -> list[str]:
    lines = ["    " + ", ".join(values[i : i + per_line]) + "," for i in range(0, len(values), per_line)]
    return [f"static const {declared} = {{", *lines, "};", ""]


def _header(guard: str, what: str, lines: list[str]) -> str:
    name = f"IE_{guard}_H"
    head = [f"/* {what}: do not edit. */", f"#ifndef {name}", f"#define {name}", "#include <stdint.h>", ""]
    return "\n".join([*head, *lines, "#endif"]) + "\n"
