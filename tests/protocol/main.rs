//! The protocol of leases (`docs/lease-protocol.md`), explored: every interleaving of a few honest
//! claims, of what the kernel does to them, and of a stranger who keeps to nothing.
//!
//! One step of the model is what the kernel does at once: a directory is listed, then each file is
//! opened, tries before leases; a rename, a lock, a death lie between any two of these. `folder` is
//! the kernel's side, `party` and `machine` are the claims, `stranger` is the stranger, `rule` asks
//! gpu-claim what they decide, `property` says what must hold, and `explore` walks. `holds` lists
//! what is explored, and `mutants` the protocols that differ from ours in one point and must fail,
//! each by the trace that shows how. `schedules` runs the program's own steps, under every schedule
//! with few preemptions, over simpler locks.
//!
//! The explorer is our own. `stateright`, the explorer for Rust, brings a web server and its runtime
//! along for a view that no test needs, and checks liveness on paths that end, not on cycles: that
//! the first of all is put off for ever is a cycle.
//!
//! What keeps the number of states small, and why nothing is lost by it:
//!
//! - What is written, locked and given its mode under a name that nobody reads is one step with the
//!   rename that shows it. So are the unlinking and the unlocking of an entry: a reader gets nothing
//!   by either.
//! - What is decided by a reading is one step with the last opening of it: nobody sees a decision.
//! - In a listing, each expected name is looked for at a moment of its own, as `getdents64` may show
//!   or miss what comes and goes meanwhile; directories are read in one order or its reverse.
//! - Where only safety is asked, a claim may try any devices, whatever it has read before.
//! - The stranger's directory is not a state: a reading finds there nothing, a lease, or a try after
//!   all others, each on all devices, every time anew. What he can do to files outside of it is
//!   explored move by move.
//! - Two devices, and claims that publish once or a few times: an entry that was withdrawn and one
//!   that never was are the same to whoever reads later.
//!
//! `GPUWS_PROTOCOL_ATTEMPTS` (how often each claim may publish) and `GPUWS_PROTOCOL_MOVES` (of the
//! stranger) widen the bounds from 1; `--nocapture` shows the figures.

#![expect(clippy::print_stdout, reason = "the figures of a run are its result")]

mod claimant;
mod explore;
mod folder;
mod invariants;
mod machine;
mod mutants;
mod property;
mod rule;
mod schedules;
mod stranger;
