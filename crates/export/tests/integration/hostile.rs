//! Clients that are slow, greedy, many, or do not speak HTTP.

use crate::served::{Client, Served};
use gpu_export::{Limits, Metrics};
use std::io::Write;
use std::net::Shutdown;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

const SCRAPE: &[u8] = b"GET /metrics HTTP/1.1\r\n\r\n";

fn limits() -> Limits {
    Limits {
        connections: 8,
        reading: Duration::from_secs(60),
        writing: Duration::from_millis(200),
        ..Limits::default()
    }
}

fn served(limits: Limits) -> Served {
    Served::start(limits, |_| Metrics::without_answer())
}

#[test]
fn silent_and_slow_clients_do_not_keep_others_out() {
    let served = served(limits());
    // Many more connections than there is room for, each with a part of a request.
    let slow: Vec<_> = (0..100).map(|_| served.connect(b"GET /metrics HTTP/1.1\r\nA: ")).collect();
    for _ in 0..20 {
        assert!(served.scrape("").contains("\ngpuws_up 0.0\n"));
    }
    // The newest of them are still connected, and the others were dropped.
    let mut newest = slow.into_iter().next_back().unwrap();
    let _ = newest.0.write_all(b"b\r\n\r\n");
    newest.answer();
}

#[test]
fn client_sending_too_slowly_is_dropped() {
    let served = served(Limits { reading: Duration::from_millis(50), ..limits() });
    assert_eq!(served.connect(b"GET /metr").answer(), "");
    assert_eq!(served.connect(b"").answer(), "");
    assert!(served.scrape("").contains("\ngpuws_up 0.0\n"));
}

#[test]
fn endless_headers_are_refused() {
    let served = served(limits());
    let endless = [b"GET /metrics HTTP/1.1\r\nA: ".to_vec(), vec![b'a'; 7000]].concat();
    let mut client = served.connect(&endless);
    // The server may have refused the rest already.
    let _ = client.0.write_all(&[b'a'; 5000]);
    let answer = client.answer();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let many = "a: b\r\n".repeat(1000);
    let answer = served.ask(&format!("GET /metrics HTTP/1.1\r\n{many}\r\n"));
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    for bytes in
        [&b"\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03"[..], b"\0\0\0\0", b"\r\n\r\n\r\n x"]
    {
        let answer = served.connect(bytes).answer();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    assert!(served.scrape("").contains("\ngpuws_up 0.0\n"));
}

#[test]
fn departed_client_has_no_cost() {
    let served = served(limits());
    for _ in 0..200 {
        let client = served.connect(SCRAPE);
        drop(client);
        let half = served.connect(SCRAPE);
        half.0.shutdown(Shutdown::Write).unwrap();
        assert!(half.answer().contains("\ngpuws_up 0.0\n"), "it can still read");
    }
    assert!(served.scrape("").contains("\ngpuws_up 0.0\n"));
}

#[test]
fn clients_not_reading_do_not_keep_others_out() {
    let served = served(limits());
    for _ in 0..10 {
        // Fewer than there is room for: a scrape in progress is not dropped for another.
        let silent: Vec<_> = (0..6).map(|_| served.connect(SCRAPE)).collect();
        assert!(served.scrape("").contains("\ngpuws_up 0.0\n"));
        drop(silent);
    }
}

/// Serves with a snapshot that ends when the returned sender is dropped.
fn served_by_a_driver_that_hangs(connections: usize) -> (Served, Sender<()>) {
    let (release, held) = channel::<()>();
    let limits = Limits { connections, ..limits() };
    let sample = move |_| {
        let _ = held.recv();
        Metrics::without_answer()
    };
    (Served::start(limits, sample), release)
}

#[test]
fn excess_scrape_evicts_oldest_with_503() {
    let (served, release) = served_by_a_driver_that_hangs(2);
    let first = [served.connect(SCRAPE), served.connect(SCRAPE)];
    let last = served.scrape("X-Prometheus-Scrape-Timeout-Seconds: 0.1\r\n");
    assert!(last.contains("\ngpuws_up 0.0\n"), "{last}");
    drop(release);
    let [oldest, other] = first.map(Client::answer);
    // It allowed 10 s and has not waited that long, so the state of the driver is unknown.
    assert!(oldest.starts_with("HTTP/1.1 503 "), "{oldest}");
    assert!(other.contains("\ngpuws_up 0.0\n"), "{other}");
}

#[test]
fn long_scrapes_do_not_silence_others_while_driver_hangs() {
    let (served, _release) = served_by_a_driver_that_hangs(8);
    let patient = b"GET /metrics HTTP/1.1\r\nX-Prometheus-Scrape-Timeout-Seconds: 120\r\n\r\n";
    let patient: Vec<_> = (0..20).map(|_| served.connect(patient)).collect();
    for _ in 0..10 {
        let usual = served.scrape("X-Prometheus-Scrape-Timeout-Seconds: 0.2\r\n");
        assert!(usual.contains("\ngpuws_up 0.0\n"), "{usual}");
    }
    drop(patient);
}

#[test]
fn short_scrapes_do_not_report_driver_down_to_others() {
    let (served, release) = served_by_a_driver_that_hangs(8);
    let hasty = || {
        served.connect(b"GET /metrics HTTP/1.1\r\nX-Prometheus-Scrape-Timeout-Seconds: 8\r\n\r\n")
    };
    let mut others: Vec<_> = (0..8).map(|_| hasty()).collect();
    let [old, new] = [(); 2].map(|()| {
        let usual = served.connect(SCRAPE);
        others.extend((0..6).map(|_| hasty()));
        usual
    });
    // The oldest is refused, without a report that the driver is silent.
    let old = old.answer();
    assert!(old.starts_with("HTTP/1.1 503 "), "{old}");
    drop(release);
    let new = new.answer();
    assert!(new.contains("\ngpuws_up 0.0\n"), "{new}");
}
