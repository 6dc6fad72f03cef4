//! A model of the lease protocol (`docs/lease-protocol.md`), explored exhaustively: every
//! interleaving of a few honest claims, the kernel's actions on them, and a stranger that follows
//! no rules.
//!
//! One step of the model is one atomic action of the kernel. A directory is listed, then each file
//! is opened, tries before leases; a rename, a lock or a death may happen between any two of these.
//! `dir` models the kernel, `claimant` and `machine` the claims, and `stranger` the stranger.
//! `rule` obtains the decisions of claims from gpu-claim, `property` contains the properties, and
//! `explore` the search. `invariants` lists the explored configurations. `mutants` lists protocols
//! that differ from ours in one point and must fail, each with a trace. `schedules` runs the
//! program's own steps over simpler locks, under every schedule with few preemptions.
//!
//! We use our own explorer because `stateright`, the explorer for Rust, depends on a web server and
//! its runtime for a view that no test needs, and checks liveness only on finite paths. Starvation
//! of the first claim is a cycle.
//!
//! The following reductions keep the number of states small without loss:
//!
//! - Writing, locking and setting the mode under a name that no claim reads is one step with the
//!   rename that publishes the file. Likewise, unlinking and unlocking an entry are one step,
//!   because a reader gains nothing from either alone.
//! - The decision after a reading is one step with its last file open, because a decision is not
//!   observable.
//! - In a listing, each expected name is looked up in a separate step, because `getdents64` may
//!   show or miss names that appear or disappear during the listing. Directories are read in one
//!   order or its reverse.
//! - If only safety is checked, a claim may try any devices, regardless of earlier readings.
//! - The stranger's directory is not part of the state: each reading finds nothing there, a lease,
//!   or a try after all others, each on all devices. Its actions on other files are explored move
//!   by move.
//! - There are two devices, and claims publish once or a few times: to later readers, a withdrawn
//!   entry is the same as one that never existed.
//!
//! `GPUWS_PROTOCOL_ATTEMPTS` (publications per claim) and `GPUWS_PROTOCOL_MOVES` (moves of the
//! stranger) raise the bounds above 1; `--nocapture` shows the figures.

#![expect(clippy::print_stdout, reason = "the figures of a run are its result")]

mod claimant;
mod dir;
mod explore;
mod invariants;
mod machine;
mod mutants;
mod property;
mod rule;
mod schedules;
mod stranger;
