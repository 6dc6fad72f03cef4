//! What is sent, and above all what is not: mocks fail on any call that is not expected.

mod audit_log;
mod escalation;
mod newcomers;
mod recheck;
mod scope;
mod setup;
mod spared;
mod verification;
