//! Many devices, and MIG devices.

use super::{GIB, head, machine, many, shown};
use crate::fixture::{lines, options, press};
use gpu_core::Bytes;
use snapbox::{assert_data_eq, str};

#[test]
fn many_devices_have_a_line_each_or_stand_side_by_side() {
    let at = |width, height| lines(&shown(options(), (width, height), [many(9, 0)]));
    assert_data_eq!(
        at(170, 24),
        str![[r#"
made · driver 1 · 9 GPUs, 1 free                                                                                                                       1970-01-01 00:00:01
 0 H100     –         –   0 % ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░      0/80.0 GiB  free                          util                                                ⢀
 1 H100     –         –   1 % ▍░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░    1.0/80.0 GiB                                util                                                ⢀
 2 H100     –         –   2 % ▉░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░    2.0/80.0 GiB  throttled                     util                                                ⢀
 3 H100     –         –   3 % █▍░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░    3.0/80.0 GiB  leased eve                    util                                                ⢀
 4 H100     –         –   4 % █▉░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░    4.0/80.0 GiB                                util                                                ⢀
 5 H100     –         –   5 % ██▍░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░    5.0/80.0 GiB                                util                                                ⢀
 6 H100     –         –   6 % ██▉░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░    6.0/80.0 GiB                                util                                                ⢀
 7 H100     –         –   7 % ███▍░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░    7.0/80.0 GiB                                util                                                ⢀
 8 H100     –         –   8 % ███▉░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░    8.0/80.0 GiB                                util                                                ⢀
                                                                                                                                                                       now
GPU▲    PID USER   GPU-MEM  SM%  CPU%      HOST    AGE TYPE NOTE      COMMAND
 no process uses these GPUs










q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details  t Tree  K End  z Pause  Esc Clear

"#]]
    );
    assert_data_eq!(
        at(100, 24),
        str![[r#"
made · driver 1 · 9 GPUs, 1 free                                                 1970-01-01 00:00:01
 0 H100     –         –   0 % ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░      0/80.0 GiB  free
 1 H100     –         –   1 % ▍░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░    1.0/80.0 GiB
 2 H100     –         –   2 % ▉░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░    2.0/80.0 GiB  throttled
 3 H100     –         –   3 % █▍░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░    3.0/80.0 GiB  leased eve
 4 H100     –         –   4 % █▉░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░    4.0/80.0 GiB
 5 H100     –         –   5 % ██▍░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░    5.0/80.0 GiB
 6 H100     –         –   6 % ██▉░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░    6.0/80.0 GiB
 7 H100     –         –   7 % ███▍░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░    7.0/80.0 GiB
 8 H100     –         –   8 % ███▉░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░    8.0/80.0 GiB
GPU▲    PID USER   GPU-MEM  SM%  CPU%    AGE TYPE NOTE      COMMAND
 no process uses these GPUs











q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details  t Tree  K End  z Pause  Esc Clear

"#]]
    );
    assert_data_eq!(
        at(100, 14),
        str![[r#"
made · driver 1 · 9 GPUs, 1 free                                                 1970-01-01 00:00:01
 0   0 % ░░░░░░░░░░░░░░     0/80.0 GiB free        5   5 % ▉░░░░░░░░░░░░░░   5.0/80.0 GiB
 1   1 % ▏░░░░░░░░░░░░░   1.0/80.0 GiB             6   6 % █▏░░░░░░░░░░░░░   6.0/80.0 GiB
 2   2 % ▎░░░░░░░░░░░░░   2.0/80.0 GiB throttled   7   7 % █▎░░░░░░░░░░░░░   7.0/80.0 GiB
 3   3 % ▌░░░░░░░░░░░░░   3.0/80.0 GiB leased eve  8   8 % █▌░░░░░░░░░░░░░   8.0/80.0 GiB
 4   4 % ▋░░░░░░░░░░░░░   4.0/80.0 GiB
GPU▲    PID USER   GPU-MEM  SM%  CPU%    AGE TYPE NOTE      COMMAND
 no process uses these GPUs





q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details  t Tree  K End  z Pause  Esc Clear

"#]]
    );
    assert_data_eq!(
        at(60, 14),
        str![[r#"
made · driver 1 · 9 GPUs, 1 free         1970-01-01 00:00:01
  0   0 % ░░░░░░░░░░░░░░░░░     5   5 % █▏░░░░░░░░░░░░░░░░
  1   1 % ▏░░░░░░░░░░░░░░░░     6   6 % █▎░░░░░░░░░░░░░░░░
  2   2 % ▍░░░░░░░░░░░░░░░░ !   7   7 % █▌░░░░░░░░░░░░░░░░
  3   3 % ▋░░░░░░░░░░░░░░░░ L   8   8 % █▊░░░░░░░░░░░░░░░░
  4   4 % ▊░░░░░░░░░░░░░░░░
GPU▲    PID USER   GPU-MEM  SM%    AGE COMMAND
 no process uses these GPUs





q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details

"#]]
    );
}

#[test]
fn devices_that_do_not_fit_are_counted() {
    let at = |width, height| head(&lines(&shown(options(), (width, height), [many(40, 0)])), 6);
    assert_data_eq!(
        at(60, 12),
        str![[r#"
made · driver 1 · 40 GPUs, 1 free        1970-01-01 00:00:01
  0   0 % ░░░░░░░     5   5 % ▍░░░░░░    10  10 % █░░░░░░░
  1   1 % ▏░░░░░░     6   6 % ▌░░░░░░    11  11 % █░░░░░░░
  2   2 % ▏░░░░░░ !   7   7 % ▌░░░░░░    12  12 % █▏░░░░░░
  3   3 % ▎░░░░░░ L   8   8 % ▋░░░░░░    13  13 % █▎░░░░░░
  4   4 % ▎░░░░░░     9   9 % ▊░░░░░░    14  14 %  +25 GPUs

"#]]
    );
    assert_data_eq!(
        at(10, 12),
        str![[r#"
  00:00:01
  0   0 %
  1   1 %
  2   2 %
  3   3 %
 +35 GPUs

"#]]
    );
    let parts = shown(options(), (20, 12), [many(3, 7)]);
    assert_data_eq!(
        head(&lines(&parts), 7),
        str![[r#"
made        00:00:01
  0   0 % ░░░░░░░░
0:0     – ░░░░░░░░
0:1     – ░░░░░░░░
0:2     – ░░░░░░░░
0:3     – ░░░░░░ +5
GPU▲    PID  GPU-MEM

"#]]
    );
}

#[test]
fn device_of_the_selected_row_is_scrolled_to() {
    for (row, first) in [(1, 0), (6, 0), (7, 1), (10, 4)] {
        let mut frame = many(10, 0);
        let user = |gpu| {
            let mut row = machine(1000).rows.remove(0);
            row.key.gpu = Some(gpu);
            row
        };
        frame.rows = (0..10).map(user).collect();
        let mut state = shown(options(), (38, 9), [frame]);
        press(&mut state, &"j".repeat(row));
        let screen = lines(&state);
        let shown = screen.lines().nth(1).unwrap().split_whitespace().next().unwrap();
        assert_eq!(shown, first.to_string(), "{row}\n{screen}");
    }
}

#[test]
fn parts_of_a_device_have_a_line_each_and_a_graph_of_their_memory() {
    let at = |width| {
        let frame = || {
            let mut frame = many(2, 2);
            frame.devices[1].memory_used = Some(Bytes(40 * GIB));
            frame
        };
        head(&lines(&shown(options(), (width, 24), [frame(), frame(), frame()])), 6)
    };
    assert_data_eq!(
        at(160),
        str![[r#"
made · driver 1 · 2 GPUs, 1 free, 2 MIG devices free                                                                                         1970-01-01 00:00:01
  0 H100            –         –   0 % ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░      0/80.0 GiB  free                  util                                     ⢀⣀
0:0 MIG 1g.10gb     –         –     – ███████████████████▌░░░░░░░░░░░░░░░░░░░   40.0/80.0 GiB  free                   mem                                     ⢠⣤
0:1 MIG 1g.10gb     –         –     – ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░      0/80.0 GiB  free                   mem                                     ⢀⣀
  1 H100            –         –   1 % ▍░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░    1.0/80.0 GiB                        util                                     ⢀⣀
                                                                                                                                                             now

"#]]
    );
    assert_data_eq!(
        at(80),
        str![[r#"
made · driver 1 · 2 GPUs, 1 free, 2 MIG devices free         1970-01-01 00:00:01
  0 H100            –         –   0 % ░░░░░░░░░░░░░░░░░      0/80.0 GiB  free
0:0 MIG 1g.10gb     –         –     – ████████▌░░░░░░░░   40.0/80.0 GiB  free
0:1 MIG 1g.10gb     –         –     – ░░░░░░░░░░░░░░░░░      0/80.0 GiB  free
  1 H100            –         –   1 % ▏░░░░░░░░░░░░░░░░    1.0/80.0 GiB
GPU▲    PID USER   GPU-MEM  SM%    AGE TYPE NOTE      COMMAND

"#]]
    );
    assert_data_eq!(
        at(24),
        str![[r#"
made            00:00:01
  0   0 % ░░░░░░░░░░░░
0:0     – ██████░░░░░░
0:1     – ░░░░░░░░░░░░
  1   1 % ▏░░░░░░░░░░░
GPU▲    PID   GPU-MEM C…

"#]]
    );
}
