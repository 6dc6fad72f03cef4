//! The server with friendly and hostile clients, the values of snapshots, and the documents that
//! name the metrics.

mod documents;
mod hostile;
mod jobs;
mod observations;
mod scrapes;
mod served;
