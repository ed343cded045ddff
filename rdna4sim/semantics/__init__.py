"""What instructions do: one module for each encoding family, each with `emit(body, inst) -> bool`."""
