//! The server with friendly and hostile clients, the values of snapshots, and the documents that
//! name the metrics.

mod documents;
mod hostile;
mod looks;
mod scrapes;
mod served;
