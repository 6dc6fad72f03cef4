//! The schemas in docs/schema: the files match the types, the fields keep rules, and every output of `--json` matches its
//! schema.

pub(crate) mod commands;
mod documents;
mod evidence;
mod fields;
mod outputs;
mod validator;
