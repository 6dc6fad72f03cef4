//! The prefixes that engines put before each line of a log.

use super::event::Framework;

/// The longest prefix in brackets, in bytes.
const MAX_LENGTH: usize = 200;

/// Removes the name of an engine's process at the start of a line, and returns it: `(EngineCore_DP0
/// pid=7)` of vLLM, `(Actor pid=7, ip=192.0.2.1)` of Ray, `[2025-01-02 03:04:05 DP0 TP3]` of
/// SGLang, `[TRT-LLM]` and `[RANK 1]`, `[TensorRT-LLM]`, `[TM]`.
pub(super) fn of_engine(line: &str) -> Option<(&str, &str)> {
    if let Some(rest) = line.strip_prefix('(') {
        let (inside, rest) = near(rest, ')')?;
        let (_, after) = inside.split_once(" pid=")?;
        return after.starts_with(|c: char| c.is_ascii_digit()).then_some((inside, rest));
    }
    let (inside, rest) = near(line.strip_prefix('[')?, ']')?;
    let is_rank = inside.strip_prefix("RANK ").is_some_and(is_number);
    let is_name = matches!(inside, "TRT-LLM" | "TensorRT-LLM" | "TM");
    let is_sglang =
        inside.split_once(' ').is_some_and(|(date, rest)| is_date(date) && has_rank(rest));
    (is_rank || is_name || is_sglang).then_some((inside, rest))
}

/// Removes the level, time and source location of a log line: `ERROR 01-02 03:04:05 [core.py:7] `
/// of vLLM, `1.06.520.077 E ` of llama.cpp with the port of a child process before it,
/// `[01/02/2025-03:04:05]`, `[E]`.
pub(super) fn of_logger(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix('[') {
        let (inside, rest) = near(rest, ']')?;
        let is_level =
            matches!(inside, "E" | "W" | "I" | "F" | "ERROR" | "WARNING" | "INFO" | "FATAL");
        let is_port =
            is_number(inside) && rest.trim_start().starts_with(|c: char| c.is_ascii_digit());
        return (is_level || is_port || is_american_date(inside)).then_some(rest);
    }
    let (first, rest) = line.split_once(' ')?;
    if matches!(first, "DEBUG" | "INFO" | "WARNING" | "ERROR" | "CRITICAL") {
        let (date, rest) = rest.split_once(' ')?;
        let (time, rest) = rest.split_once(' ')?;
        let is_moment = date.len() == 5 && is_stamp(date) && time.len() == 8 && is_stamp(time);
        let (_, rest) = near(rest.strip_prefix('[')?, ']')?;
        return is_moment.then_some(rest);
    }
    // Minutes, seconds, milliseconds and microseconds.
    let is_clock = first.matches('.').count() == 3 && is_stamp(first);
    let rest = rest.strip_prefix(['E', 'W', 'I', 'D'])?.strip_prefix(' ')?;
    is_clock.then_some(rest)
}

/// Returns the engine that labels its processes like this.
pub(super) fn engine(label: &str) -> Option<Framework> {
    const OF_VLLM: [&str; 5] =
        ["EngineCore", "VllmWorker", "Worker_", "APIServer", "RayWorkerWrapper"];
    match label {
        "TRT-LLM" | "TensorRT-LLM" => Some(Framework::TensorRtLlm),
        "TM" => Some(Framework::LmDeploy),
        _ if OF_VLLM.iter().any(|name| label.starts_with(name)) => Some(Framework::Vllm),
        _ if label.split_once(' ').is_some_and(|(date, _)| is_date(date)) => {
            Some(Framework::SgLang)
        }
        _ => None,
    }
}

/// Splits at the end of a bracket.
fn near(text: &str, end: char) -> Option<(&str, &str)> {
    let window = &text[..text.floor_char_boundary(MAX_LENGTH)];
    let at = window.find(end)?;
    Some((&text[..at], &text[at + 1..]))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether a text has only digits and the punctuation of a date or time.
fn is_stamp(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || b"-:./".contains(&byte))
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.as_bytes()[4] == b'-' && is_stamp(text)
}

/// `01/02/2025-03:04:05`.
fn is_american_date(text: &str) -> bool {
    text.len() == 19 && text.as_bytes()[2] == b'/' && is_stamp(text)
}

/// `03:04:05 DP0 TP3`. SGLang's time without ranks is kept, because other programs print the same
/// form.
fn has_rank(text: &str) -> bool {
    let mut words = text.split(' ');
    let is_time = words.next().is_some_and(|time| time.len() == 8 && is_stamp(time));
    let is_rank = |word: &str| {
        ["TP", "DP", "PP", "EP"].iter().any(|kind| word.strip_prefix(kind).is_some_and(is_number))
    };
    let mut ranks = words.peekable();
    is_time && ranks.peek().is_some() && ranks.all(is_rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_engines_are_removed() {
        for (line, label, rest) in [
            ("(EngineCore_DP0 pid=7) x", "EngineCore_DP0 pid=7", " x"),
            ("(Actor pid=7, ip=192.0.2.1) x", "Actor pid=7, ip=192.0.2.1", " x"),
            ("[2025-01-02 03:04:05 DP0 TP3] x", "2025-01-02 03:04:05 DP0 TP3", " x"),
            ("[TRT-LLM] [RANK 1] x", "TRT-LLM", " [RANK 1] x"),
            ("[RANK 1] x", "RANK 1", " x"),
            ("[TensorRT-LLM][ERROR] x", "TensorRT-LLM", "[ERROR] x"),
        ] {
            assert_eq!(of_engine(line), Some((label, rest)), "{line}");
        }
        for line in ["(see pid=x) y", "(note) y", "[2025-01-02 03:04:05] y", "[RANK x] y", "[", "("]
        {
            assert_eq!(of_engine(line), None, "{line}");
        }
        for (line, rest) in [
            ("ERROR 01-02 03:04:05 [core.py:7] x", Some(" x")),
            ("ERROR 01-02 [core.py:7] x", None),
            ("1.06.520.077 E x", Some("x")),
            ("1.06.520 E x", None),
            ("[4242] 1.06.520.077 E x", Some(" 1.06.520.077 E x")),
            ("[01/02/2025-03:04:05] x", Some(" x")),
            ("[note] x", None),
        ] {
            assert_eq!(of_logger(line), rest, "{line}");
        }
    }

    #[test]
    fn prefix_names_its_engine() {
        for (label, of) in [
            ("EngineCore_DP0 pid=7", Some(Framework::Vllm)),
            ("Actor pid=7", None),
            ("TM", Some(Framework::LmDeploy)),
            ("TRT-LLM", Some(Framework::TensorRtLlm)),
            ("2025-01-02 03:04:05 TP3", Some(Framework::SgLang)),
            ("rank0", None),
        ] {
            assert_eq!(engine(label), of, "{label}");
        }
    }
}
