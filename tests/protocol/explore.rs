//! Explores all states of a model, breadth first.
//!
//! A state is stored as a 128-bit hash with the step that first led to it. A counterexample is
//! replayed from the start and has minimum length. Two states with colliding hashes would count as
//! one; with 10^8 states, the probability is below 10^-22.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A model to explore.
pub(crate) trait Model {
    /// A state; equal states have equal successors.
    type State: Clone + Hash + Eq;

    /// Returns the initial state.
    fn initial(&self) -> Self::State;

    /// Adds every possible step: its actor, its description (`None` if not needed), and the
    /// resulting state or violation.
    fn steps(&self, state: &Self::State, words: bool, steps: &mut Vec<Step<Self::State>>);

    /// Returns the violation in a state.
    fn violation(&self, state: &Self::State) -> Option<String>;

    /// Returns whether any claim is still waiting in a state.
    fn is_open(&self, state: &Self::State) -> bool;
}

/// One step.
pub(crate) struct Step<S> {
    /// The actor. Actors below [`CLAIMANTS`] are scheduled fairly.
    pub(crate) who: u8,
    pub(crate) words: String,
    pub(crate) after: Result<S, String>,
}

/// Other actors (deaths, strangers) have this number or a higher one.
pub(crate) const CLAIMANTS: u8 = 8;

/// The result of an exploration.
#[derive(Debug)]
pub(crate) struct Explored {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    pub(crate) depth: u32,
    pub(crate) found: Option<Counterexample>,
}

/// A trace to a failed property.
#[derive(Debug)]
pub(crate) struct Counterexample {
    pub(crate) violated: String,
    pub(crate) trace: String,
}

struct Known {
    parent: u32,
    step: u16,
    depth: u32,
}

/// The states found and, to check progress, the steps between them.
struct Graph {
    known: Vec<Known>,
    edges: Vec<Vec<(u32, u8)>>,
    open: Vec<bool>,
}

/// Explores all states up to the first violation. With `progress`, then checks whether all waiting
/// claims can wait forever although none is stopped.
pub(crate) fn explore<M: Model>(model: &M, progress: bool) -> Explored {
    let mut graph = Graph { known: Vec::new(), edges: Vec::new(), open: Vec::new() };
    let mut numbers: HashMap<u128, u32, BuildHasherDefault<Plain>> = HashMap::default();
    let mut queue = std::collections::VecDeque::new();
    let initial = model.initial();
    numbers.insert(hash(&initial), 0);
    graph.known.push(Known { parent: 0, step: 0, depth: 0 });
    queue.push_back((0u32, initial));
    let (mut steps, mut total) = (Vec::new(), 0);
    let mut found = None;
    'all: while let Some((number, state)) = queue.pop_front() {
        let depth = graph.known[number as usize].depth + 1;
        model.steps(&state, false, &mut steps);
        total += steps.len();
        let mut edges = Vec::new();
        if steps.is_empty() && progress && model.is_open(&state) {
            found =
                Some(("no claimant can take a step, and a claim waits".to_owned(), number, None));
            break;
        }
        for (index, step) in steps.drain(..).enumerate() {
            let index = u16::try_from(index).expect("fewer steps");
            let after = match step.after {
                Ok(after) => after,
                Err(violated) => {
                    found = Some((violated, number, Some(index)));
                    break 'all;
                }
            };
            let next = u32::try_from(graph.known.len()).expect("fewer states");
            let reached = *numbers.entry(hash(&after)).or_insert(next);
            if progress {
                edges.push((reached, step.who));
            }
            if reached == next {
                graph.known.push(Known { parent: number, step: index, depth });
                if let Some(violated) = model.violation(&after) {
                    found = Some((violated, next, None));
                    break 'all;
                }
                queue.push_back((next, after));
            }
        }
        if progress {
            graph.open.push(model.is_open(&state));
            graph.edges.push(edges);
        }
    }
    let complete = found.is_none();
    if complete && progress {
        found = graph.livelock().map(|number| {
            let what = "all claimants take steps forever, and no claim is granted";
            (what.to_owned(), number, None)
        });
    }
    let found = found.map(|(violated, number, last)| Counterexample {
        trace: trace(model, &graph.known, number, last, complete),
        violated,
    });
    let depth = graph.known.last().map_or(0, |last| last.depth);
    Explored { states: graph.known.len(), steps: total, depth, found }
}

fn hash<S: Hash>(state: &S) -> u128 {
    let mut hasher = Wide(0);
    state.hash(&mut hasher);
    hasher.0
}

/// A 128-bit multiplicative hash, several times as fast as two of the standard library's hashes.
/// Inputs are not adversarial.
struct Wide(u128);

impl Wide {
    fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ u128::from(word)).wrapping_add(1).wrapping_mul(FACTOR);
        self.0 ^= self.0 >> 67;
    }
}

/// Odd, with as many ones as zeros.
const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

impl Hasher for Wide {
    fn finish(&self) -> u64 {
        self.0 as u64
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.add(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.add(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.add(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.add(value as u64);
    }
}

/// Hashes of hashes are the identity.
#[derive(Default)]
struct Plain(u64);

impl Hasher for Plain {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers of 128 bits")
    }

    fn write_u128(&mut self, value: u128) {
        self.0 = (value >> 32) as u64;
    }
}

/// Returns the description of the steps to a state; for a livelock, followed by some steps of the
/// cycle.
fn trace<M: Model>(
    model: &M,
    known: &[Known],
    number: u32,
    last: Option<u16>,
    cycle: bool,
) -> String {
    let mut path: Vec<u16> = last.into_iter().collect();
    let mut at = number;
    while at != 0 {
        path.push(known[at as usize].step);
        at = known[at as usize].parent;
    }
    let mut text = String::new();
    let mut state = model.initial();
    for (count, index) in path.into_iter().rev().enumerate() {
        let mut steps = Vec::new();
        model.steps(&state, true, &mut steps);
        let step = steps.swap_remove(usize::from(index));
        let _ = writeln!(text, "{:>3} {}", count + 1, step.words);
        let Ok(after) = step.after else { break };
        state = after;
    }
    if cycle {
        text.push_str("    and so on, round and round\n");
    }
    text
}

impl Graph {
    /// Returns a state that can recur forever while a claim waits and each claimant either takes
    /// steps or sometimes has none to take: a strongly connected component under weak fairness.
    /// Grants are never revoked, so no claim is granted anything in the component.
    fn livelock(&self) -> Option<u32> {
        let components = self.components();
        let count = components.iter().map(|one| *one as usize + 1).max().unwrap_or(0);
        // For each component: the claimants with a step in it, and those without a step in some
        // of its states.
        let (mut inner, mut idle) = (vec![0u8; count], vec![0u8; count]);
        let mut first = vec![u32::MAX; count];
        for (state, edges) in self.edges.iter().enumerate() {
            let component = components[state] as usize;
            let mut enabled = 0u8;
            for (to, who) in edges {
                if *who < CLAIMANTS {
                    enabled |= 1 << who;
                    if components[*to as usize] as usize == component {
                        inner[component] |= 1 << who;
                    }
                }
            }
            idle[component] |= !enabled;
            if self.open[state] && first[component] == u32::MAX {
                first[component] = state as u32;
            }
        }
        (0..count)
            .filter(|one| inner[*one] != 0 && inner[*one] | idle[*one] == u8::MAX)
            .map(|one| first[one])
            .filter(|state| *state != u32::MAX)
            .min()
    }

    /// Tarjan's algorithm, without recursion.
    fn components(&self) -> Vec<u32> {
        const NONE: u32 = u32::MAX;
        let size = self.edges.len();
        let (mut index, mut low) = (vec![NONE; size], vec![0u32; size]);
        let mut component = vec![NONE; size];
        let (mut stack, mut count, mut next) = (Vec::new(), 0, 0);
        for root in 0..size {
            if index[root] != NONE {
                continue;
            }
            let mut calls = vec![(root, 0usize)];
            while let Some((at, edge)) = calls.pop() {
                if edge == 0 {
                    (index[at], low[at]) = (next, next);
                    next += 1;
                    stack.push(at);
                }
                if let Some((to, _)) = self.edges[at].get(edge) {
                    let to = *to as usize;
                    calls.push((at, edge + 1));
                    if index[to] == NONE {
                        calls.push((to, 0));
                    } else if component[to] == NONE {
                        low[at] = low[at].min(index[to]);
                    }
                    continue;
                }
                if low[at] == index[at] {
                    while let Some(one) = stack.pop() {
                        component[one] = count;
                        if one == at {
                            break;
                        }
                    }
                    count += 1;
                }
                if let Some((parent, _)) = calls.last() {
                    low[*parent] = low[*parent].min(low[at]);
                }
            }
        }
        component
    }
}
