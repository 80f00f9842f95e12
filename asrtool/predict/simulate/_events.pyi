from asrtool.predict.simulate.compiled import Numbers

SOURCE_DIGEST: str

def run(
    settings: tuple[float, ...],
    spans: Numbers,
    loads: Numbers | None,
    partners: Numbers | None,
    nodes: Numbers,
    sums: Numbers,
) -> None: ...
def run_lock_step(
    settings: tuple[float, ...],
    computes: Numbers,
    loads: Numbers | None,
    answered: Numbers | None,
    sums: Numbers,
) -> None: ...
