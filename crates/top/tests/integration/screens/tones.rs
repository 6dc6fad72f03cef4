//! The colours and styles.

use super::{machine, shown};
use crate::fixture::{key, options, press};
use gpu_top::{Attention, Options, State, Theme};
use ratatui_core::buffer::Buffer;
use ratatui_crossterm::crossterm::event::KeyCode;
use snapbox::{assert_data_eq, str};

/// Returns the text of a screen, with the style of each piece of text in front of it.
fn toned(buffer: &Buffer) -> String {
    let area = *buffer.area();
    let mut text = String::new();
    for y in area.top()..area.bottom() {
        let mut last = None;
        let mut line = String::new();
        for x in area.left()..area.right() {
            let cell = &buffer[(x, y)];
            let style = (cell.fg, cell.modifier);
            if last != Some(style) {
                let (fg, modifier) = style;
                let both = format!("{fg} {modifier:?}").to_lowercase();
                let names = both.replace("reset", "").replace("none", "");
                line += &format!("<{}>", names.trim());
                last = Some(style);
            }
            line += cell.symbol();
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn state(theme: Theme, attention: Attention) -> State {
    let options = Options { theme, attention, ..options() };
    let mut state = shown(options, (90, 16), [machine(1000), machine(2000)]);
    press(&mut state, "j j");
    state
}

#[test]
fn dark_theme_marks_attention_in_yellow_and_the_selection_reversed() {
    let attention = Attention { temperature: Some(85), memory: Some(75), power: Some(92) };
    assert_data_eq!(
        toned(&state(Theme::Dark, attention).drawn()),
        str![[r#"
<bold>made<dim> · <>driver 1<dim> · <>3 GPUs, 1 free                           <yellow bold>  1 tagged<dim>  1970-01-01 00:00:02
<> <bold>0<> A100-SXM4-80GB  <yellow bold>85°C<> <yellow bold>371/400 W<>  50 % <cyan>████████████▊<dim>░░░░<>   <yellow bold>60.0/80.0 GiB<>  <yellow bold>ghost +1<>
<> <dim>util<>                       <cyan>⣠<>   <dim>mem<>                       <cyan>⣶<> <dim>power<>                       <cyan>⣿<>
<> <bold>1<> A100-SXM4-80GB  31°C      52 W   0 % <cyan>▋<dim>░░░░░░░░░░░░░░░░<>    3.0/80.0 GiB  leased alice +1
<> <dim>util<>                       <dim>⣀<>   <dim>mem<>                       <cyan>⣀<> <dim>power<>
<> <bold>2<> RTX 4090           <dim>–<>         <dim>–<>     <dim>–<>                                 0  <green>free<>
<> <dim>util<>                           <dim>mem<>                         <dim>power<>
<>      <dim>  -40s              now<>       <dim>  -40s              now<>       <dim>  -40s              now<>
<underlined>  <bold | underlined>GPU▲<underlined>    <dim | underlined>PID<underlined> <dim | underlined>USER<underlined>             <dim | underlined>GPU-MEM<underlined>  <dim | underlined>SM%<underlined>    <dim | underlined>AGE<underlined> <dim | underlined>TYPE<underlined> <dim | underlined>NOTE<underlined>        <dim | underlined>COMMAND<underlined>
<yellow bold>*<>   0      71 alice           40.0 GiB    7    <dim>3 h<> <dim>C<>    leased      python train.py --epo…
<>    0      72 bartholomew-v…   700 MiB    <dim>–<>    <dim>2 s<> <dim>C<>    <yellow bold>idle holder<> vllm serve
<reversed>    1 4194300 bob              3.0 GiB    7      <dim | reversed>–<reversed> <dim | reversed>C<reversed>                jupyter
<>    1       <dim>–<> ?                <yellow bold>2.0 GiB<>    <dim>–<>      <dim>–<> <dim>-<>    <yellow bold>unlisted<>    <yellow bold>not listed: 88 python<>
<>    2       <dim>–<> ?                      <dim>–<>    <dim>–<>      <dim>–<> <dim>-<>    <yellow bold>foreign<>     listed as host PID 99…
<>
<bold>q<> <dim>Quit<>  <bold>?<> <dim>Help<>  <bold>/<> <dim>Filter<>  <bold>s<> <dim>Sort<>  <bold>r<> <dim>Reverse<>  <bold>Enter<> <dim>Details<>  <bold>t<> <dim>Tree<>  <bold>K<> <dim>End<>  <bold>z<> <dim>Pause<>

"#]]
    );
}

#[test]
fn value_below_its_threshold_needs_no_attention() {
    let attention = Attention { temperature: Some(86), memory: Some(76), power: Some(93) };
    assert_data_eq!(
        toned(&state(Theme::Light, attention).drawn()),
        str![[r#"
<bold>made<dim> · <>driver 1<dim> · <>3 GPUs, 1 free                           <red bold>  1 tagged<dim>  1970-01-01 00:00:02
<> <bold>0<> A100-SXM4-80GB  85°C 371/400 W  50 % <blue>████████████▊<dim>░░░░<>   60.0/80.0 GiB  <red bold>ghost +1<>
<> <dim>util<>                       <blue>⣠<>   <dim>mem<>                       <blue>⣶<> <dim>power<>                       <blue>⣿<>
<> <bold>1<> A100-SXM4-80GB  31°C      52 W   0 % <blue>▋<dim>░░░░░░░░░░░░░░░░<>    3.0/80.0 GiB  leased alice +1
<> <dim>util<>                       <dim>⣀<>   <dim>mem<>                       <blue>⣀<> <dim>power<>
<> <bold>2<> RTX 4090           <dim>–<>         <dim>–<>     <dim>–<>                                 0  <green>free<>
<> <dim>util<>                           <dim>mem<>                         <dim>power<>
<>      <dim>  -40s              now<>       <dim>  -40s              now<>       <dim>  -40s              now<>
<underlined>  <bold | underlined>GPU▲<underlined>    <dim | underlined>PID<underlined> <dim | underlined>USER<underlined>             <dim | underlined>GPU-MEM<underlined>  <dim | underlined>SM%<underlined>    <dim | underlined>AGE<underlined> <dim | underlined>TYPE<underlined> <dim | underlined>NOTE<underlined>        <dim | underlined>COMMAND<underlined>
<red bold>*<>   0      71 alice           40.0 GiB    7    <dim>3 h<> <dim>C<>    leased      python train.py --epo…
<>    0      72 bartholomew-v…   700 MiB    <dim>–<>    <dim>2 s<> <dim>C<>    <red bold>idle holder<> vllm serve
<reversed>    1 4194300 bob              3.0 GiB    7      <dim | reversed>–<reversed> <dim | reversed>C<reversed>                jupyter
<>    1       <dim>–<> ?                <red bold>2.0 GiB<>    <dim>–<>      <dim>–<> <dim>-<>    <red bold>unlisted<>    <red bold>not listed: 88 python<>
<>    2       <dim>–<> ?                      <dim>–<>    <dim>–<>      <dim>–<> <dim>-<>    <red bold>foreign<>     listed as host PID 99…
<>
<bold>q<> <dim>Quit<>  <bold>?<> <dim>Help<>  <bold>/<> <dim>Filter<>  <bold>s<> <dim>Sort<>  <bold>r<> <dim>Reverse<>  <bold>Enter<> <dim>Details<>  <bold>t<> <dim>Tree<>  <bold>K<> <dim>End<>  <bold>z<> <dim>Pause<>

"#]]
    );
}

#[test]
fn theme_without_colours_has_only_styles() {
    let mut state = state(Theme::Mono, Attention::default());
    assert_data_eq!(
        toned(&state.drawn()),
        str![[r#"
<bold>made<dim> · <>driver 1<dim> · <>3 GPUs, 1 free                           <bold>  1 tagged<dim>  1970-01-01 00:00:02
<> <bold>0<> A100-SXM4-80GB  85°C 371/400 W  50 % ████████████▊<dim>░░░░<>   60.0/80.0 GiB  <bold>ghost +1<>
<> <dim>util<>                       ⣠   <dim>mem<>                       ⣶ <dim>power<>                       ⣿
<> <bold>1<> A100-SXM4-80GB  31°C      52 W   0 % ▋<dim>░░░░░░░░░░░░░░░░<>    3.0/80.0 GiB  leased alice +1
<> <dim>util<>                       <dim>⣀<>   <dim>mem<>                       ⣀ <dim>power<>
<> <bold>2<> RTX 4090           <dim>–<>         <dim>–<>     <dim>–<>                                 0  free
<> <dim>util<>                           <dim>mem<>                         <dim>power<>
<>      <dim>  -40s              now<>       <dim>  -40s              now<>       <dim>  -40s              now<>
<underlined>  <bold | underlined>GPU▲<underlined>    <dim | underlined>PID<underlined> <dim | underlined>USER<underlined>             <dim | underlined>GPU-MEM<underlined>  <dim | underlined>SM%<underlined>    <dim | underlined>AGE<underlined> <dim | underlined>TYPE<underlined> <dim | underlined>NOTE<underlined>        <dim | underlined>COMMAND<underlined>
<bold>*<>   0      71 alice           40.0 GiB    7    <dim>3 h<> <dim>C<>    leased      python train.py --epo…
<>    0      72 bartholomew-v…   700 MiB    <dim>–<>    <dim>2 s<> <dim>C<>    <bold>idle holder<> vllm serve
<reversed>    1 4194300 bob              3.0 GiB    7      <dim | reversed>–<reversed> <dim | reversed>C<reversed>                jupyter
<>    1       <dim>–<> ?                <bold>2.0 GiB<>    <dim>–<>      <dim>–<> <dim>-<>    <bold>unlisted<>    <bold>not listed: 88 python<>
<>    2       <dim>–<> ?                      <dim>–<>    <dim>–<>      <dim>–<> <dim>-<>    <bold>foreign<>     listed as host PID 99…
<>
<bold>q<> <dim>Quit<>  <bold>?<> <dim>Help<>  <bold>/<> <dim>Filter<>  <bold>s<> <dim>Sort<>  <bold>r<> <dim>Reverse<>  <bold>Enter<> <dim>Details<>  <bold>t<> <dim>Tree<>  <bold>K<> <dim>End<>  <bold>z<> <dim>Pause<>

"#]]
    );
    state.update(key(KeyCode::Enter));
    assert_data_eq!(
        toned(&state.drawn()),
        str![[r#"
<bold>made<dim> · <>driver 1<dim> · <>3 GPUs, 1 free                           <bold>  1 tagged<dim>  1970-01-01 00:00:02
<dim>┌─<bold | dim> details <dim>──────────────────────────────────────────────────────────────────────────────┐
<dim>│<> <bold>4194300 jupyter<>                                                                        <dim>│
<dim>│<> user         bob                                                                       <dim>│
<dim>│<> GPU 1        3 GiB, SM 7 %, type C                                                     <dim>│
<dim>│<> host         –, CPU 0 %                                                                <dim>│
<dim>│<> SM                                                                                     <dim>│
<dim>│<>                                                                                      ⣀ <dim>│
<dim>│<> memory                                                                                 <dim>│
<dim>│<>                                                                                      ⣀ <dim>│
<dim>│<> CPU ≤100%                                                                              <dim>│
<dim>│<>                                                                                      ⢀ <dim>│
<dim>│<> <dim>                         -2m                                                       now<> <dim>│
<dim>│<> started      1970-01-01 00:00:00                                                       <dim>│
<dim>└────────────────────────────────────────────────────────────────────────────────────────┘
<bold>Esc<> <dim>Close<>  <bold>Down<> <dim>Scroll<>  <bold>q<> <dim>Quit<>  <bold>?<> <dim>Help<>  <bold>Enter<> <dim>Details<>  <bold>K<> <dim>End<>  <bold>z<> <dim>Pause<>

"#]]
    );
}
