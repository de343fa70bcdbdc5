"""The rule of races for agents of the async proxy: properties of all executions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flash_attest.races.events import Access, Agent, Barrier, End, Fence, Issue, MapAcquire, MapRelease, Thread
from flash_attest.races.launch import Event, Launch
from flash_attest.races.rule import conflict, during, lacks_fence, races

FENCE = Fence()

# An execution is drawn as one sequence of steps: an access or a fence of a thread, a barrier, an
# agent that the threads of a warp issue or wait for.

THREADS = [Thread(0, index) for index in range(4)]
WARPS = [THREADS[:2], THREADS[2:]]

ACCESSES = st.builds(
    Access,
    what=st.sampled_from(["read", "write"]),
    memory=st.just("x"),
    start=st.integers(0, 2),
    size=st.integers(1, 2),
)
MAPS = st.builds(Access, what=st.just("read"), memory=st.just("x"), start=st.integers(0, 2), size=st.just(2))
AGENTS = st.tuples(st.lists(ACCESSES, min_size=1, max_size=2), st.integers(0, 1), st.lists(MAPS, max_size=1))
FENCES = st.sampled_from([FENCE, MapRelease(), *(MapAcquire("x", start, 2) for start in range(3))])
STEPS = st.lists(
    st.tuples(st.sampled_from(THREADS), ACCESSES | FENCES)
    | st.sets(st.sampled_from(THREADS), min_size=2).map(sorted)
    | AGENTS.map(lambda drawn: ("issue", *drawn))
    | st.tuples(st.just("end"), st.integers(0, 3), st.booleans(), st.booleans()),
    max_size=14,
)


def agents_of(steps: list) -> list[tuple[Agent, list[Thread]]]:
    """Return the agents with the threads that issue them."""
    issues = [(n, step) for n, step in enumerate(steps) if step[0] == "issue"]
    return [
        (
            Agent(n, *(tuple(a for a in step[1] if a.what == what) for what in ("read", "write")), maps=tuple(step[3])),
            WARPS[step[2]],
        )
        for n, step in issues
    ]


def project(steps: list) -> tuple[Launch, list]:
    """Return the launch, and its events in the order of the steps, each as (threads, event)."""
    sequence = []
    agents, issued = agents_of(steps), 0
    for n, step in enumerate(steps):
        if isinstance(step, list):
            sequence.append((step, Barrier(n)))
        elif step[0] == "issue":
            agent, warp = agents[issued]
            issued += 1
            sequence.append((warp, Issue(agent)))
        elif step[0] == "end":
            _, number, by_other_warp, of_reads = step
            if number < issued:
                agent, warp = agents[number]
                sequence.append((WARPS[1 - WARPS.index(warp)] if by_other_warp else warp, End(agent, of_reads)))
        else:
            sequence.append(([step[0]], step[1]))
    threads = {thread: [event for who, event in sequence if thread in who] for thread in THREADS}
    return Launch(threads), sequence


@given(STEPS)
def test_vector_clocks_say_the_same(steps):
    """This is the other definition: along the sequence each thread gathers what it knows to come
    before, what of it a fence separates from the async proxy, and what of it fences have released
    and then acquired for which tensor map.
    """
    launch, sequence = project(steps)
    known = {thread: set() for thread in THREADS}
    fenced = {thread: set() for thread in THREADS}
    released = {thread: set() for thread in THREADS}
    acquired = {thread: set() for thread in THREADS}  # with the acquire
    before, before_fenced, before_map = {}, {}, {}  # of each point
    position = dict.fromkeys(THREADS, 0)
    for who, event in sequence:
        points = {thread: (thread, position[thread]) for thread in who}
        for thread, point in points.items():
            before[point], before_fenced[point] = set(known[thread]), set(fenced[thread])
            known[thread] |= {point}
            position[thread] += 1
        if isinstance(event, Fence):
            fenced[who[0]] |= known[who[0]]
        if isinstance(event, MapRelease):
            released[who[0]] |= known[who[0]]
        if isinstance(event, MapAcquire):
            acquired[who[0]] |= {(point, event) for point in released[who[0]]}
        if isinstance(event, Barrier):
            for of in (known, fenced, released, acquired):
                everything = set().union(*(of[thread] for thread in who))
                of.update((thread, set(everything)) for thread in who)
        if isinstance(event, Issue):
            for part in range(2):
                before[event.agent, part] = set().union(*(known[thread] for thread in who))
                before_fenced[event.agent, part] = set().union(*(fenced[thread] for thread in who))
            before[event.agent, 1] |= {(event.agent, 0)}
            before_map[event.agent] = set().union(*(acquired[thread] for thread in who))
        if isinstance(event, End):
            done = {(event.agent, part) for part in range(1 if event.of_reads else 2)}
            for thread in who:
                known[thread] |= done
                fenced[thread] |= done
    every = launch.accesses()
    for a in every:
        for b in every:
            if a.thread != b.thread:
                want = a.point in (before if a.is_async == b.is_async else before_fenced)[b.point]
                if b.of_map:
                    want = any(a.point == point and of.covers(b.access) for point, of in before_map[b.thread])
                assert launch.before(a, b) == want, (a, b)


def racing(launch: Launch) -> set:
    """Return each race, by what remains the same if steps are added to the sequence."""

    def name(event: Event) -> tuple:
        if isinstance(event.thread, Agent):
            return event.thread.reads, event.thread.writes, event.thread.maps, event.access, event.of_map
        earlier = launch.threads[event.thread][: event.step]
        return event.thread, sum(isinstance(each, Access) for each in earlier)

    return {frozenset(map(name, pair)) for pair in races(launch)}


@given(STEPS, st.sampled_from(THREADS), st.integers(0, 14))
def test_another_fence_adds_no_race(steps, thread, position):
    more = [*steps[:position], (thread, FENCE), *steps[position:]]
    assert racing(project(more)[0]) <= racing(project(steps)[0])


@given(STEPS)
def test_with_a_fence_after_each_access_the_proxies_do_not_matter(steps):
    fenced = [new for step in steps for new in ([step, (step[0], FENCE)] if isinstance(step[1], Access) else [step])]
    launch, _ = project(fenced)
    for a, b in races(launch):
        if a.of_map or b.of_map:
            continue  # which have fences of their own
        assert not lacks_fence(launch, a, b) and not launch.path(a.point, b.point) and not launch.path(b.point, a.point)


@given(STEPS)
def test_what_is_met_during_an_agent_is_a_race(steps):
    launch, _ = project(steps)
    pairs = [frozenset(pair) for pair in races(launch)]
    for own, other, _ in during(launch):
        assert isinstance(own.thread, Agent) and conflict(own, other) and frozenset((own, other)) in pairs
