"""The kernels under AddressSanitizer and UndefinedBehaviorSanitizer: `make test-sanitized`."""
