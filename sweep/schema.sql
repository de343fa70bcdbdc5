-- The file of a sweep. A run is written before it is launched, so a run that is still "running" when
-- no sweep uses the file was launched and did not come back.
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

-- One start of `flash-attest sweep`.
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    started TEXT NOT NULL,              -- ISO 8601, UTC
    ended TEXT NOT NULL DEFAULT '',     -- '': still running, or killed
    state TEXT NOT NULL,                -- running, complete, interrupted, stopped
    seconds REAL NOT NULL DEFAULT 0,
    environment TEXT NOT NULL           -- JSON: command, device, versions, workers, pairs left out or given up
) STRICT;

CREATE TABLE runs (
    seed INTEGER NOT NULL,
    number INTEGER NOT NULL,
    session TEXT NOT NULL REFERENCES sessions (id),
    impl TEXT NOT NULL,
    version TEXT NOT NULL,              -- of the implementation (sweep/version.py)
    layer TEXT NOT NULL,
    law TEXT NOT NULL,
    case_ TEXT NOT NULL,
    perturbations TEXT NOT NULL,
    asked INTEGER NOT NULL,             -- repeats asked for
    device TEXT NOT NULL,
    state TEXT NOT NULL,                -- drawn, running, done
    deaths INTEGER NOT NULL DEFAULT 0,  -- how often it was launched and did not come back
    worker TEXT NOT NULL DEFAULT '',
    started TEXT NOT NULL DEFAULT '',
    seconds REAL NOT NULL DEFAULT 0,
    repeats INTEGER NOT NULL DEFAULT 0, -- repeats made
    verdict TEXT NOT NULL DEFAULT '',
    why TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (seed, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_open ON runs (state) WHERE state <> 'done';
CREATE INDEX runs_of_session ON runs (session, verdict);

-- One row for each distinct finding.
CREATE TABLE findings (
    impl TEXT NOT NULL,
    version TEXT NOT NULL,
    law TEXT NOT NULL,
    layer TEXT NOT NULL,
    key TEXT NOT NULL,                  -- the headline without numbers that change from case to case
    state TEXT NOT NULL,                -- found, in work, reported
    worker TEXT NOT NULL DEFAULT '',
    deaths INTEGER NOT NULL DEFAULT 0,  -- how many processes died while they repeated and reduced it
    seed INTEGER NOT NULL,              -- of the run that found it first
    number INTEGER NOT NULL,
    found TEXT NOT NULL,                -- ISO 8601, UTC
    times INTEGER NOT NULL DEFAULT 1,   -- runs that found it
    known TEXT NOT NULL DEFAULT '',     -- the reason, if the implementation lists it in known_failures
    headline TEXT NOT NULL,
    case_ TEXT NOT NULL,
    perturbations TEXT NOT NULL,
    asked INTEGER NOT NULL,
    device TEXT NOT NULL,
    repeated TEXT NOT NULL DEFAULT '',  -- in words: how often it showed when it was repeated
    reduced TEXT NOT NULL DEFAULT '',   -- in words: from which case, or why not
    message TEXT NOT NULL,
    replay TEXT NOT NULL,
    PRIMARY KEY (impl, version, law, device, key)
) STRICT;
