//! Runs graphs of operations: on threads, on streams of devices, or in virtual time.
//!
//! The main decision is that a graph becomes a compact list of successors and counts once, and that
//! every executor walks this list by the same rule: a node runs once, after all nodes before it.
