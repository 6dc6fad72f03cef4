//! The devices at each level of detail.

use super::{head, machine, many, shown, watched};
use crate::fixture::{control, lines, options};
use gpu_top::{Event, Marker, Options};
use snapbox::{assert_data_eq, str};

#[test]
fn few_devices_have_graphs_below_all_their_values() {
    assert_data_eq!(
        lines(&watched((124, 30))),
        str![[r#"
made · driver 1 · 3 GPUs, 1 free                                                                         1970-01-01 00:00:09
 0 A100-SXM4-80GB  85°C 371/400 W 100 % █████████████████████████████▎░░░░░░░░░   60.0/80.0 GiB  ghost +1
 util                                ⡇ ⢸   mem                                    power                              ⢰⣶⣶⣶⣶
                                    ⢸⡇ ⣿                                    ⢸⣿⣿⣿⣿                                    ⢸⣿⣿⣿⣿
                                    ⣿⡇⢸⣿                                    ⢸⣿⣿⣿⣿                                    ⢸⣿⣿⣿⣿
                                   ⢸⣿⣇⣿⣿                                    ⢸⣿⣿⣿⣿                                    ⢸⣿⣿⣿⣿
 1 A100-SXM4-80GB  31°C      52 W   0 % █▍░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░    3.0/80.0 GiB  leased alice +1
 util                                      mem                                    power


                                   ⢀⣀⣀⣀⣀                                    ⢀⣀⣀⣀⣀
 2 RTX 4090           –         –     –                                                       0  free
 util                                      mem                                    power



         -1m                         now          -1m                         now          -1m                         now
GPU▲    PID USER             GPU-MEM  SM%  CPU%      HOST    AGE TYPE NOTE        JOB              COMMAND
  0      71 alice           40.0 GiB    7     0  12.0 GiB    3 h C    leased      Slurm 4711       python train.py --epochs…
  0      72 bartholomew-v…   700 MiB    –     0         –    9 s C    idle holder                  vllm serve
  1 4194300 bob              3.0 GiB    7     0         –      – C                                 jupyter
  1       – ?                2.0 GiB    –     –         –      – -    unlisted                     not listed: 88 python
  2       – ?                      –    –     –         –      – -    foreign                      listed as host PID 99, n…






q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details  t Tree  K End  z Pause  Esc Clear

"#]]
    );
}

#[test]
fn graphs_of_power_and_then_of_memory_give_way_on_a_narrow_screen() {
    let at = |width| head(&lines(&watched((width, 24))), 6);
    assert_data_eq!(
        at(60),
        str![[r#"
made · driver 1 · 3 GPUs, 1 free         1970-01-01 00:00:09
 0 100 % ███████████████░░░░░  60.0/80.0 GiB ghost +1
 util          ⢀⡇ ⣸   mem         ⢀⣀⣀⣀⣀ power         ⢸⣿⣿⣿⣿
               ⣼⡇⢠⣿               ⢸⣿⣿⣿⣿               ⢸⣿⣿⣿⣿
              ⢰⣿⣇⣾⣿               ⢸⣿⣿⣿⣿               ⢸⣿⣿⣿⣿
 1   0 % ▊░░░░░░░░░░░░░░░░░░░   3.0/80.0 GiB leased alice +1

"#]]
    );
    assert_data_eq!(
        at(59),
        str![[r#"
made · driver 1 · 3 GPUs, 1 free        1970-01-01 00:00:09
 0 100 % ██████████████▎░░░░  60.0/80.0 GiB ghost +1
 util                   ⢀⡇ ⣸   mem                  ⢀⣀⣀⣀⣀
                        ⣼⡇⢠⣿                        ⢸⣿⣿⣿⣿
                       ⢰⣿⣇⣾⣿                        ⢸⣿⣿⣿⣿
 1   0 % ▋░░░░░░░░░░░░░░░░░░   3.0/80.0 GiB leased alice +1

"#]]
    );
    assert_data_eq!(
        at(39),
        str![[r#"
made · driver 1     1970-01-01 00:00:09
 0 100 % ███░  60.0/80.0 GiB ghost +1
 util                             ⢀⡇ ⣸
                                  ⣼⡇⢠⣿
                                 ⢰⣿⣇⣾⣿
 1   0 % ▏░░░   3.0/80.0 GiB leased al…

"#]]
    );
}

#[test]
fn fewer_lines_leave_lower_graphs_and_then_none() {
    let at = |height| lines(&watched((80, height)));
    assert_data_eq!(
        at(16),
        str![[r#"
made · driver 1 · 3 GPUs, 1 free                             1970-01-01 00:00:09
 0 A100-SXM4-80GB  85°C 371/400 W 100 % ██████░░   60.0/80.0 GiB  ghost +1
 util               ⢀⣴⣇⣠⣾   mem               ⢰⣶⣶⣶⣶ power               ⢸⣿⣿⣿⣿
 1 A100-SXM4-80GB  31°C      52 W   0 % ▎░░░░░░░    3.0/80.0 GiB  leased alice …
 util               ⢀⣀⣀⣀⣀   mem               ⢀⣀⣀⣀⣀ power
 2 RTX 4090           –         –     –                        0  free
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
    assert_data_eq!(
        at(12),
        str![[r#"
made · driver 1 · 3 GPUs, 1 free                             1970-01-01 00:00:09
 0 A100-SXM4-80GB  85°C 371/400 W 100 % ██████░░   60.0/80.0 GiB  ghost +1
 1 A100-SXM4-80GB  31°C      52 W   0 % ▎░░░░░░░    3.0/80.0 GiB  leased alice …
 2 RTX 4090           –         –     –                        0  free
GPU▲    PID USER             GPU-MEM  SM%    AGE TYPE NOTE        COMMAND
  0      71 alice           40.0 GiB    7    3 h C    leased      python train.…
  0      72 bartholomew-v…   700 MiB    –    9 s C    idle holder vllm serve
  1 4194300 bob              3.0 GiB    7      – C                jupyter
  1       – ?                2.0 GiB    –      – -    unlisted    not listed: 8…
  2       – ?                      –    –      – -    foreign     listed as hos…

q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details  t Tree  K End

"#]]
    );
    assert_data_eq!(
        at(8),
        str![[r#"
made · driver 1 · 3 GPUs, 1 free                             1970-01-01 00:00:09
 0 A100-SXM4-80GB  85°C 371/400 W 100 % ██████░░   60.0/80.0 GiB  ghost +1
 1 A100-SXM4-80GB  31°C      52 W   0 % ▎░░░░░░░    3.0/80.0 GiB  leased alice …
 2 RTX 4090           –         –     –                        0  free
GPU▲    PID USER             GPU-MEM  SM%    AGE TYPE NOTE        COMMAND
  0      71 alice           40.0 GiB    7    3 h C    leased      python train.…
  0      72 bartholomew-v…   700 MiB    –    9 s C    idle holder vllm serve
q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details  t Tree  K End

"#]]
    );
    assert_data_eq!(
        at(7),
        str![[r#"
made · driver 1 · 3 GPUs, 1 free                             1970-01-01 00:00:09
 0 100 % ███░  60.0/80.0 GiB ghost +1    2     –                   0 free
 1   0 % ▏░░░   3.0/80.0 GiB leased al…
GPU▲    PID USER             GPU-MEM  SM%    AGE TYPE NOTE        COMMAND
  0      71 alice           40.0 GiB    7    3 h C    leased      python train.…
  0      72 bartholomew-v…   700 MiB    –    9 s C    idle holder vllm serve
q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details  t Tree  K End

"#]]
    );
    assert_data_eq!(
        at(6),
        str![[r#"
made · driver 1 · 3 GPUs, 1 free                             1970-01-01 00:00:09
 0 100 % ███░  60.0/80.0 GiB ghost +1    2     –                   0 free
 1   0 % ▏░░░   3.0/80.0 GiB leased al…
GPU▲    PID USER             GPU-MEM  SM%    AGE TYPE NOTE        COMMAND
  0      71 alice           40.0 GiB    7    3 h C    leased      python train.…
q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details  t Tree  K End

"#]]
    );
    assert_data_eq!(
        at(5),
        str![[r#"
made · driver 1 · 3 GPUs, 1 free                             1970-01-01 00:00:09
  0 100 % █████████▊░░░ !   1   0 % ▍░░░░░░░░░░░░ L   2     –
GPU▲    PID USER             GPU-MEM  SM%    AGE TYPE NOTE        COMMAND
  0      71 alice           40.0 GiB    7    3 h C    leased      python train.…
q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details  t Tree  K End

"#]]
    );
    assert_data_eq!(
        at(4),
        str![[r#"
made · driver 1 · 3 GPUs, 1 free                             1970-01-01 00:00:09
  0 100 % █████████▊░░░ !   1   0 % ▍░░░░░░░░░░░░ L   2     –
  0      71 alice           40.0 GiB    7    3 h C    leased      python train.…
q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details  t Tree  K End

"#]]
    );
    assert_data_eq!(
        at(3),
        str![[r#"
made · driver 1 · 3 GPUs, 1 free                             1970-01-01 00:00:09
  0 100 % █████████▊░░░ !   1   0 % ▍░░░░░░░░░░░░ L   2     –
  0      71 alice           40.0 GiB    7    3 h C    leased      python train.…

"#]]
    );
}

#[test]
fn graphs_are_drawn_with_each_kind_of_characters() {
    let all = |marker| {
        let options = Options { marker, ..options() };
        let frames = (1..10).map(|second| machine(second * 1000));
        head(&lines(&shown(options, (72, 24), frames)), 7)
    };
    assert_data_eq!(
        all(Marker::Braille),
        str![[r#"
made · driver 1 · 3 GPUs, 1 free                     1970-01-01 00:00:09
 0 A100-SXM4…  85°C 371/400 W 100 % ██████░░   60.0/80.0 GiB  ghost +1
 util              ⢀⡇ ⣸   mem             ⢀⣀⣀⣀⣀ power             ⢸⣿⣿⣿⣿
                   ⣼⡇⢠⣿                   ⢸⣿⣿⣿⣿                   ⢸⣿⣿⣿⣿
                  ⢰⣿⣇⣾⣿                   ⢸⣿⣿⣿⣿                   ⢸⣿⣿⣿⣿
 1 A100-SXM4…  31°C      52 W   0 % ▎░░░░░░░    3.0/80.0 GiB  leased al…
 util                     mem                   power

"#]]
    );
    assert_data_eq!(
        all(Marker::Block),
        str![[r#"
made · driver 1 · 3 GPUs, 1 free                     1970-01-01 00:00:09
 0 A100-SXM4…  85°C 371/400 W 100 % ██████░░   60.0/80.0 GiB  ghost +1
 util           ▂█   ▂█   mem         ▂▂▂▂▂▂▂▂▂ power         ▇▇▇▇▇▇▇▇▇
               ▄██  ▄██               █████████               █████████
              ▆███▁▆███               █████████               █████████
 1 A100-SXM4…  31°C      52 W   0 % ▎░░░░░░░    3.0/80.0 GiB  leased al…
 util                     mem                   power

"#]]
    );
    assert_data_eq!(
        all(Marker::Ascii),
        str![[r#"
made - driver 1 - 3 GPUs, 1 free                     1970-01-01 00:00:09
 0 A100-SXM4.  85 C 371/400 W 100 % ######..   60.0/80.0 GiB  ghost +1
 util           .#   .#   mem         ......... power         #########
               :##  :##               #########               #########
              ####.####               #########               #########
 1 A100-SXM4.  31 C      52 W   0 % -.......    3.0/80.0 GiB  leased al.
 util                     mem                   power

"#]]
    );
}

#[test]
fn screen_without_devices_names_the_reason() {
    let mut state = gpu_top::State::new(options(), (60, 8));
    assert_data_eq!(
        lines(&state),
        str![[r#"

looking …
GPU▲    PID USER   GPU-MEM  SM%    AGE COMMAND




q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details

"#]]
    );
    state.update(Event::Tick(std::time::Duration::from_secs(7)));
    assert_data_eq!(
        lines(&state),
        str![[r#"
no answer from the machine for 7 s
looking …
GPU▲    PID USER   GPU-MEM  SM%    AGE COMMAND




q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details

"#]]
    );
    let mut none = many(1, 0);
    none.devices.clear();
    state.update(Event::Frame(Box::new(none.clone())));
    assert_data_eq!(
        lines(&state),
        str![[r#"
made · driver 1 · 0 GPUs, 0 free         1970-01-01 00:00:01
no GPU is shown
GPU▲    PID USER   GPU-MEM  SM%    AGE COMMAND




q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details

"#]]
    );
    none.snapshot.driver = Err(gpu_core::Fault {
        kind: gpu_core::ErrorKind::Machine(gpu_core::MachineFault::NoLibrary),
        text: "load the driver's library: not found".to_owned(),
    });
    state.update(Event::Frame(Box::new(none)));
    state.update(control('l'));
    assert_data_eq!(
        lines(&state),
        str![[r#"
made                                     1970-01-01 00:00:01
no NVIDIA driver is installed
GPU▲    PID USER   GPU-MEM  SM%    AGE COMMAND
 remedy: install the driver, or try a simulated machine:
 gpuws demo


q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details

"#]]
    );
}
