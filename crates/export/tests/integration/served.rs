//! A server on a real socket, and clients.

use gpu_core::{Clock, Timestamp};
use gpu_export::{Limits, Metrics, Sampler, Server};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time of this machine.
pub(crate) struct RealClock(Instant);

impl RealClock {
    #[expect(clippy::disallowed_methods, reason = "the server waits for real sockets")]
    pub(crate) fn new() -> Self {
        RealClock(Instant::now())
    }
}

impl Clock for RealClock {
    fn wall(&self) -> Timestamp {
        Timestamp(0)
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "a look that takes time")]
    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// A server, which ends when this value is dropped.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    end: UnixStream,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Served {
    pub(crate) fn start(
        limits: Limits,
        sample: impl FnMut(Duration) -> Metrics + Send + 'static,
    ) -> Self {
        Served::start_at(RealClock::new(), limits, sample)
    }

    pub(crate) fn start_at(
        clock: impl Clock + 'static,
        limits: Limits,
        sample: impl FnMut(Duration) -> Metrics + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = UnixStream::pair().unwrap();
        let sampler = Sampler::start(sample).unwrap();
        let mut server = Server::new(listener, sampler, limits).unwrap();
        let thread = std::thread::spawn(move || server.run(&clock, ended.as_fd()));
        Served { address, end, thread: Some(thread) }
    }

    /// Sends a request and returns the whole answer.
    pub(crate) fn ask(&self, request: &str) -> String {
        self.connect(request.as_bytes()).answer()
    }

    pub(crate) fn scrape(&self, headers: &str) -> String {
        self.ask(&format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{headers}\r\n"))
    }

    /// Connects, and sends these bytes.
    pub(crate) fn connect(&self, bytes: &[u8]) -> Client {
        let mut stream = TcpStream::connect(self.address).unwrap();
        // A test must not hang.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(bytes).unwrap();
        Client(stream)
    }

    /// Returns the error that ended the server.
    pub(crate) fn failure(mut self) -> String {
        self.thread.take().unwrap().join().unwrap().unwrap_err().to_string()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.end.write_all(&[0]);
        if let Some(thread) = self.thread.take() {
            assert!(std::thread::panicking() || thread.join().unwrap().is_ok());
        }
    }
}

pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    /// Returns everything received until the server closes the connection; empty if it was reset.
    pub(crate) fn answer(mut self) -> String {
        let mut bytes = Vec::new();
        match self.0.read_to_end(&mut bytes) {
            Ok(_) => String::from_utf8(bytes).unwrap(),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => String::new(),
            Err(error) => panic!("{error}"),
        }
    }
}
