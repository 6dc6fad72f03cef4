//! One gRPC call over a Unix socket: a request without fields, answered by one message.

use bytes::Bytes;
use gpu_core::{Error, ErrorKind, ProcessFault, clean};
use h2::client;
use http::{HeaderMap, Request, StatusCode};
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::net::UnixStream;

/// The maximum size of an answer in bytes, which is also the kubelet's limit.
pub(crate) const MAX_ANSWER_BYTES: usize = 16 << 20;

/// The maximum length in characters of a server message that is quoted.
const MAX_QUOTED_CHARS: usize = 200;

/// The compression flag and the length of an empty message.
const EMPTY: &[u8] = &[0; 5];

/// The gRPC status for a method that the server lacks.
const UNIMPLEMENTED: &str = "12";

/// Calls `method` and returns the message. The process that serves the socket must belong to one of
/// the users in `trusted`. The kernel reports the user of the listening process, regardless of the
/// file's owner.
///
/// # Errors
/// `Field(NotFound)` when there is no socket or no process listens on it, `Process(NotPermitted)`
/// when the caller may not connect, `Unsupported` when the server lacks the method, `TimedOut`, and
/// `Invalid` when another user serves the socket or the answer is not exactly one gRPC message.
pub(crate) fn call(
    socket: &Path,
    method: &'static str,
    trusted: &[u32],
    deadline: Duration,
) -> Result<Vec<u8>, Error> {
    let what = format!("query the kubelet at '{}'", clean(&socket.to_string_lossy()));
    let failed = |kind: ErrorKind, why: String| Error::new(kind, what.clone()).with_source(why);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(ErrorKind::Io, error.to_string()))?;
    let answer = runtime.block_on(async {
        tokio::time::timeout(deadline, exchange(socket, method, trusted)).await
    });
    match answer {
        Ok(Ok(message)) => Ok(message),
        Ok(Err((kind, why))) => Err(failed(kind, why)),
        Err(_) => {
            let why = format!("no answer within {:.1} s", deadline.as_secs_f64());
            Err(failed(ErrorKind::TimedOut, why))
        }
    }
}

/// The error kind and a description without the object.
type Why = (ErrorKind, String);

fn invalid(why: impl ToString) -> Why {
    (ErrorKind::Invalid, why.to_string())
}

async fn exchange(socket: &Path, method: &str, trusted: &[u32]) -> Result<Vec<u8>, Why> {
    let stream = UnixStream::connect(socket).await.map_err(|error| {
        let kind = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ErrorKind::Field(gpu_core::Absent::NotFound)
            }
            io::ErrorKind::PermissionDenied => ErrorKind::Process(ProcessFault::NotPermitted),
            _ => ErrorKind::Io,
        };
        (kind, error.to_string())
    })?;
    let peer = stream.peer_cred().map_err(|error| (ErrorKind::Io, error.to_string()))?;
    if !trusted.contains(&peer.uid()) {
        return Err(invalid(format_args!("it is served by user {}, not by root", peer.uid())));
    }
    let broken = |error: h2::Error| invalid(format_args!("it does not speak gRPC: {error}"));
    let mut builder = client::Builder::new();
    builder.enable_push(false).max_header_list_size(16 << 10).initial_window_size(1 << 20);
    let (sender, connection) = builder.handshake::<_, Bytes>(stream).await.map_err(broken)?;
    // The task ends with the runtime, after this call.
    tokio::spawn(connection);
    let mut sender = sender.ready().await.map_err(broken)?;
    let request = Request::post(format!("http://localhost{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .map_err(invalid)?;
    let (answer, mut body) = sender.send_request(request, false).map_err(broken)?;
    body.send_data(Bytes::from_static(EMPTY), true).map_err(broken)?;
    let answer = answer.await.map_err(broken)?;
    if answer.status() != StatusCode::OK {
        return Err(invalid(format_args!("it answered with HTTP status {}", answer.status())));
    }
    // gRPC sends an error without a message in the headers.
    if answer.headers().contains_key("grpc-status") {
        check(answer.headers())?;
    }
    let mut body = answer.into_body();
    let mut message = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk.map_err(broken)?;
        if message.len() + chunk.len() > MAX_ANSWER_BYTES + EMPTY.len() {
            return Err(invalid(format_args!(
                "the answer is longer than {} MiB",
                MAX_ANSWER_BYTES >> 20
            )));
        }
        message.extend_from_slice(&chunk);
        body.flow_control().release_capacity(chunk.len()).map_err(broken)?;
    }
    check(&body.trailers().await.map_err(broken)?.unwrap_or_default())?;
    let Some((prefix, rest)) = message.split_first_chunk::<5>() else {
        return Err(invalid("the answer has no message"));
    };
    let [compressed, length @ ..] = *prefix;
    if compressed != 0 || usize::try_from(u32::from_be_bytes(length)) != Ok(rest.len()) {
        return Err(invalid("the answer is not one message"));
    }
    message.drain(..EMPTY.len());
    Ok(message)
}

/// Returns the error that the server reports, if any.
fn check(trailers: &HeaderMap) -> Result<(), Why> {
    let text = |name: &str| trailers.get(name).and_then(|value| value.to_str().ok());
    match text("grpc-status") {
        Some("0") => Ok(()),
        Some(status) => {
            let kind = match status {
                UNIMPLEMENTED => ErrorKind::Unsupported,
                _ => ErrorKind::Invalid,
            };
            let short = |text: &str| clean(text).chars().take(MAX_QUOTED_CHARS).collect::<String>();
            let message = short(text("grpc-message").unwrap_or_default());
            Err((kind, format!("it answered with gRPC status {} {message}", short(status))))
        }
        None => Err(invalid("the answer ends without a status")),
    }
}
