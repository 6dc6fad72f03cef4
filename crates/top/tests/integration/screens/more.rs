//! The second line of each device, the load of the host, and the time axis.

use super::{GIB, head, machine, many, shown};
use crate::fixture::{key, lines, options, press};
use gpu_core::{Absent, Bytes, CpuTime, HostLoad};
use gpu_top::frame::Frame;
use gpu_top::more::More;
use gpu_top::{Event, Marker, Options, State};
use ratatui_crossterm::crossterm::event::KeyCode;
use snapbox::{assert_data_eq, str};
use std::time::Duration;

/// The machine with the values of the second lines. Each second, the first device receives 1.5 GB
/// and sends 2 MB.
fn loaded(at: u64) -> Frame {
    let mut frame = machine(at);
    let bytes = |rate: u64| Ok(Bytes(at * rate / 1000));
    frame.devices[0].more = More {
        clocks: [Ok(1410), Ok(1593)],
        traffic: [bytes(1_500_000_000), bytes(2_000_000)],
        shares: [Err(Absent::NotSupported), Ok(0), Ok(100)],
        ..More::default()
    };
    let not = Absent::NotSupported;
    frame.devices[1].more = More {
        clocks: [Ok(210), Ok(1593)],
        traffic: [Err(not), Err(not)],
        shares: [Err(Absent::NotPermitted); 3],
        ..More::default()
    };
    let ticks = at / 10;
    frame.load(Some(HostLoad {
        averages: Ok([1_205, 98, 7]),
        cpu: Ok(CpuTime { busy: ticks / 4, total: ticks, count: 64 }),
        memory: Ok((Bytes(120 * GIB), Bytes(503 * GIB))),
    }))
}

fn with_more() -> Options {
    Options { more: true, interval: Duration::from_secs(1), ..options() }
}

fn watched(options: Options, size: (u16, u16)) -> State {
    shown(options, size, (1..10).map(|second| loaded(second * 1000)))
}

#[test]
fn second_line_shows_values_and_reasons_below_each_device() {
    assert_data_eq!(
        lines(&watched(with_more(), (80, 24))),
        str![[r#"
made · driver 1 · 3 GPUs, 1 free                             1970-01-01 00:00:09
 load 12.05 0.98 0.07 · CPU  25 % of 64 · memory 120.0/503.0 GiB
 0 A100-SXM4-80GB  85°C 371/400 W 100 % ██████░░   60.0/80.0 GiB  ghost +1
   SM 1410 mem  1593 MHz  PCIe rx  1500 tx     2 MB/s  fan   – enc   0 dec 100 %
 util               ⢀⣴⣇⣠⣾   mem               ⢰⣶⣶⣶⣶ power               ⢸⣿⣿⣿⣿
 1 A100-SXM4-80GB  31°C      52 W   0 % ▎░░░░░░░    3.0/80.0 GiB  leased alice …
   SM  210 mem  1593 MHz  PCIe not supported           fan/enc/dec not permitted
 util               ⢀⣀⣀⣀⣀   mem               ⢀⣀⣀⣀⣀ power
 2 RTX 4090           –         –     –                        0  free
   SM    – mem     – MHz  PCIe rx     – tx     – MB/s  fan   – enc   – dec   – %
 util                       mem                     power
         -30s         now          -30s         now          -30s         now
GPU▲    PID USER             GPU-MEM  SM%    AGE TYPE NOTE        COMMAND
  0      71 alice           40.0 GiB    7    3 h C    leased      python train.…
  0      72 bartholomew-v…   700 MiB    –    9 s C    idle holder vllm serve
  1 4194300 bob              3.0 GiB    7      – C                jupyter
  1       – ?                2.0 GiB    –      – -    unlisted    not listed: 8…
  2       – ?                      –    –      – -    foreign     listed as hos…





q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details  t Tree  K End

"#]]
    );
}

#[test]
fn key_shows_and_hides_the_second_line() {
    let mut state = watched(Options { more: false, ..with_more() }, (80, 24));
    let plain = lines(&state);
    assert!(!plain.contains("MHz") && !plain.contains("load"), "{plain}");
    assert!(!state.shows_more());
    press(&mut state, "i");
    assert!(state.shows_more() && lines(&state).contains("SM 1410 mem  1593 MHz"));
    press(&mut state, "i");
    assert_eq!(lines(&state), plain);
    // In a box, the key has no effect.
    state.update(key(KeyCode::Enter));
    press(&mut state, "i");
    assert!(!state.shows_more());
}

#[test]
fn rates_follow_from_the_previous_snapshot_alone() {
    let mut state = State::new(with_more(), (80, 24));
    let mut rx = |frame: Frame| {
        state.update(Event::Frame(Box::new(frame)));
        let screen = lines(&state);
        let line = screen.lines().find(|line| line.contains("PCIe rx")).unwrap_or(&screen);
        let after = |line: &str, name: &str, columns| -> String {
            let value = line.split(name).nth(1).unwrap_or_default();
            value.chars().take(columns).collect::<String>().trim().to_owned()
        };
        (after(line, "rx", 6), after(screen.lines().nth(1).unwrap(), "CPU", 4))
    };
    let known = |rate: &str, busy: &str| (rate.to_owned(), busy.to_owned());
    assert_eq!(rx(loaded(1000)), known("–", "–"));
    assert_eq!(rx(loaded(2000)), known("1500", "25"));
    assert_eq!(rx(loaded(4000)), known("1500", "25"), "of any duration");
    assert_eq!(rx(loaded(4000)), known("–", "–"), "no time has passed");
    let mut again = loaded(5000);
    again.devices[0].more.traffic = [Ok(Bytes(7)), Ok(Bytes(7))];
    assert_eq!(rx(again), known("–", "25"), "the counter has started again");
    assert_eq!(rx(machine(6000)), known("–", ""), "nothing was read");
    assert_eq!(rx(loaded(7000)), known("–", "–"), "and so this is the first one");
    assert_eq!(rx(loaded(8000)), known("1500", "25"));
}

#[test]
fn devices_that_do_not_fit_with_their_second_line_are_counted() {
    let at = |size, frame| head(&lines(&shown(with_more(), size, [frame])), 9);
    assert_data_eq!(
        at((80, 16), many(9, 0)),
        str![[r#"
made · driver 1 · 9 GPUs, 1 free                             1970-01-01 00:00:01
 host load not recorded
 0 H100     –         –   0 % ░░░░░░░░░░░░░░░░░░░░░░      0/80.0 GiB  free
   SM    – mem     – MHz  PCIe rx     – tx     – MB/s  fan   – enc   – dec   – %
 1 H100     –         –   1 % ▎░░░░░░░░░░░░░░░░░░░░░    1.0/80.0 GiB
   SM    – mem     – MHz  PCIe rx     – tx     – MB/s  fan   – enc   – dec   – %
 2 H100     –         –   2 % ▌░░░░░░░░░░░░░░░░░░░░░    2.0/80.0 GiB  throttled
   SM    – mem     – MHz  PCIe rx     – tx     – MB/s  fan   – enc   –  +6 GPUs
GPU▲    PID USER   GPU-MEM  SM%    AGE TYPE NOTE      COMMAND

"#]]
    );
    // A MIG device has no values of its own.
    assert_data_eq!(
        at((80, 24), many(1, 2)),
        str![[r#"
made · driver 1 · 1 GPU, 1 free, 2 MIG devices free          1970-01-01 00:00:01
 host load not recorded
  0 H100            –         –   0 % ░░░░░░░░░░░░░░░░░      0/80.0 GiB  free
   SM    – mem     – MHz  PCIe rx     – tx     – MB/s  fan   – enc   – dec   – %
0:0 MIG 1g.10gb     –         –     – ░░░░░░░░░░░░░░░░░      0/80.0 GiB  free

0:1 MIG 1g.10gb     –         –     – ░░░░░░░░░░░░░░░░░      0/80.0 GiB  free

GPU▲    PID USER   GPU-MEM  SM%    AGE TYPE NOTE      COMMAND

"#]]
    );
    // Too narrow.
    let narrow = lines(&shown(with_more(), (37, 24), [many(9, 0)]));
    assert!(!narrow.contains("SM") && narrow.contains("host load"), "{narrow}");
    assert!(!lines(&shown(with_more(), (80, 11), [many(1, 0)])).contains("host load"));
}

/// Returns the line of the axis; empty if there is none.
fn axis(state: &State) -> String {
    let screen = lines(state);
    let axis = |line: &&str| line.trim_end().ends_with("now") || line.trim_end().ends_with("0s");
    screen.lines().find(axis).unwrap_or_default().to_owned()
}

/// Returns the state after snapshots of one device at these times, in milliseconds.
fn timed(options: Options, size: (u16, u16), times: impl IntoIterator<Item = u64>) -> State {
    let frame = |at| {
        let mut frame = many(1, 0).read_at(Duration::from_millis(at));
        frame.devices[0].utilization = Some(50);
        frame
    };
    shown(options, size, times.into_iter().map(frame))
}

#[test]
fn axis_names_the_age_of_a_column_at_every_width_and_interval() {
    let every = |interval: u64| Options { interval: Duration::from_millis(interval), ..options() };
    // One graph at 39 columns, in which a column is two snapshots.
    for (interval, width, label, column) in [
        (1000, 39, "-1m", 30),
        (1000, 21, "-20s", 10),
        (2000, 39, "-2m", 30),
        (100, 39, "-5s", 25),
        (60_000, 39, "-1h", 30),
        (86_400_000, 39, "-50d", 25),
    ] {
        let times = (0..200).map(|number| number * interval);
        let state = timed(every(interval), (width, 24), times);
        let line = axis(&state);
        let from_right = usize::from(width) - 1 - 1 - line.find('-').unwrap_or(0);
        assert!(line.contains(&format!("{label} ")), "{interval} {width}: {line}");
        assert_eq!(from_right, column, "{interval} {width}: {line}");
    }
    // Before the graph is full, the interval determines how old its first columns will be.
    let state = timed(every(1000), (39, 24), [0]);
    assert!(axis(&state).contains("-1m "), "{}", axis(&state));
    // A new size has new labels.
    let mut state = timed(every(1000), (39, 24), (0..200).map(|number| number * 1000));
    state.update(Event::Resize(21, 24));
    assert!(axis(&state).contains("-20s "), "{}", axis(&state));
}

#[test]
fn axis_counts_the_time_of_snapshots_that_took_long() {
    let every = Options { interval: Duration::from_secs(1), ..options() };
    // A snapshot a second, and one that waited half a minute for the driver.
    let times = (0..100).map(|number| if number < 90 { number } else { number + 29 } * 1000);
    let line = axis(&timed(every, (39, 24), times));
    // 29 of the snapshots of the last minute are missing.
    let label = line.find("-1m").unwrap();
    assert_eq!(39 - 1 - 1 - label, (60 - 29) / 2, "{line}");
}

#[test]
fn axis_of_a_recording_has_its_times_and_does_not_say_now() {
    let replays = Options { replays: true, ..options() };
    let times = (0..100).map(|number| number * 30_000);
    let line = axis(&timed(replays.clone(), (39, 24), times));
    assert!(line.contains("-30m ") && line.ends_with("0s"), "{line}");
    // With one frame, no other time is known.
    assert_eq!(axis(&timed(replays, (39, 24), [5000])).trim(), "0s");
    let block = Options { marker: Marker::Block, interval: Duration::from_secs(1), ..options() };
    let mut state = timed(block, (39, 24), (0..100).map(|number| number * 1000));
    assert!(axis(&state).contains("-30s "), "{}", axis(&state));
    press(&mut state, "z");
    assert!(axis(&state).ends_with("0s"), "the screen is paused");
}

#[test]
fn axis_leaves_lines_for_the_table() {
    let every = Options { interval: Duration::from_secs(1), ..options() };
    let has_axis = |height| !axis(&timed(every.clone(), (39, height), [0])).is_empty();
    assert!(has_axis(24) && !has_axis(8), "lines of a small screen are for the table");
    // Many devices have none, unless their lines have graphs.
    let wide = |width| axis(&shown(every.clone(), (width, 40), [many(9, 0)]));
    assert_eq!(wide(145), "");
    assert!(wide(146).ends_with("now"), "{}", wide(146));
}
