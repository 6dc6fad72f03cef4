//! Which signals are sent, and above all which are not: mocks fail on any unexpected call.

mod audit_log;
mod escalation;
mod newcomers;
mod recheck;
mod scope;
mod setup;
mod spared;
mod verification;
