//! Regular expressions of quantization configurations, in Python's syntax.
//!
//! The subset that checkpoints use: literals, `.`, classes, `\d` and `\w`, groups, alternatives,
//! repetition, anchors and lookahead. Configurations are hostile, so the length of a pattern is
//! limited, and the caller limits the steps of a search.

const MAX_PATTERN: usize = 4096;
const MAX_NESTING: usize = 16;
const MAX_REPEAT: u32 = 1000;

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Any,
    Byte(u8),
    /// Byte ranges, and whether they are excluded.
    Class(Vec<(u8, u8)>, bool),
    Start,
    End,
    Group(Vec<Vec<Node>>),
    /// A lookahead, and whether it is negative.
    Lookahead(Vec<Vec<Node>>, bool),
    Repeat(Box<Node>, u32, u32),
}

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Regex(Vec<Vec<Node>>);

/// The remaining steps for searches; zero after a search that ran out of steps.
pub(super) struct Steps(pub(super) u64);

impl Regex {
    /// Parses a pattern; `None` if it is malformed, too long, or uses unsupported syntax.
    pub(super) fn parse(pattern: &str) -> Option<Regex> {
        if pattern.len() > MAX_PATTERN {
            return None;
        }
        let mut parser = Parser { text: pattern.as_bytes(), at: 0 };
        let alternatives = parser.alternatives(0)?;
        (parser.at == parser.text.len()).then_some(Regex(alternatives))
    }

    /// Returns whether a prefix of a text matches, like Python's `re.match`.
    pub(super) fn matches(&self, text: &str, steps: &mut Steps) -> bool {
        any(&self.0, text.as_bytes(), 0, steps, &mut |_, _| true)
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn take(&mut self, wanted: &[u8]) -> bool {
        let found = self.text.get(self.at..).is_some_and(|rest| rest.starts_with(wanted));
        self.at += if found { wanted.len() } else { 0 };
        found
    }

    fn alternatives(&mut self, depth: usize) -> Option<Vec<Vec<Node>>> {
        if depth > MAX_NESTING {
            return None;
        }
        let mut all = vec![Vec::new()];
        while let Some(byte) = self.peek().filter(|byte| *byte != b')') {
            self.at += 1;
            let node = match byte {
                b'|' => {
                    all.push(Vec::new());
                    continue;
                }
                b'.' => Node::Any,
                b'^' => Node::Start,
                b'$' => Node::End,
                b'[' => self.class()?,
                b'\\' => escaped(self.next()?)?,
                b'(' => self.group(depth)?,
                b'*' | b'+' | b'?' | b'{' => return None,
                byte => Node::Byte(byte),
            };
            let node = self.repeated(node)?;
            all.last_mut()?.push(node);
        }
        Some(all)
    }

    fn group(&mut self, depth: usize) -> Option<Node> {
        let lookahead = match () {
            () if self.take(b"?!") => Some(true),
            () if self.take(b"?=") => Some(false),
            () if self.take(b"?:") || self.peek() != Some(b'?') => None,
            () => return None,
        };
        let alternatives = self.alternatives(depth + 1)?;
        (self.next() == Some(b')')).then_some(match lookahead {
            Some(negative) => Node::Lookahead(alternatives, negative),
            None => Node::Group(alternatives),
        })
    }

    fn class(&mut self) -> Option<Node> {
        let negated = self.take(b"^");
        let mut ranges = Vec::new();
        loop {
            match self.next()? {
                b']' if !ranges.is_empty() => return Some(Node::Class(ranges, negated)),
                b'\\' => match escaped(self.next()?)? {
                    Node::Byte(byte) => ranges.push((byte, byte)),
                    Node::Class(more, false) => ranges.extend(more),
                    _ => return None,
                },
                from => {
                    let is_range = self.peek() == Some(b'-')
                        && self.text.get(self.at + 1).is_some_and(|byte| *byte != b']');
                    let to = if is_range {
                        self.at += 1;
                        self.next()?
                    } else {
                        from
                    };
                    ranges.push((from, to));
                }
            }
        }
    }

    fn repeated(&mut self, node: Node) -> Option<Node> {
        let (least, most) = match self.peek() {
            Some(b'*') => (0, u32::MAX),
            Some(b'+') => (1, u32::MAX),
            Some(b'?') => (0, 1),
            Some(b'{') => {
                self.at += 1;
                let least = self.number()?;
                let most = if !self.take(b",") {
                    least
                } else if self.peek() == Some(b'}') {
                    u32::MAX
                } else {
                    self.number()?
                };
                if self.peek() != Some(b'}') || least > MAX_REPEAT || most < least {
                    return None;
                }
                (least, most)
            }
            _ => return Some(node),
        };
        self.at += 1;
        // Laziness of a repetition does not affect whether there is a match.
        self.take(b"?");
        Some(Node::Repeat(Box::new(node), least, most))
    }

    fn number(&mut self) -> Option<u32> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        std::str::from_utf8(self.text.get(start..self.at)?).ok()?.parse().ok()
    }
}

fn escaped(byte: u8) -> Option<Node> {
    Some(match byte {
        b'd' => Node::Class(vec![(b'0', b'9')], false),
        b'w' => Node::Class(vec![(b'0', b'9'), (b'a', b'z'), (b'A', b'Z'), (b'_', b'_')], false),
        byte if byte.is_ascii_alphanumeric() => return None,
        byte => Node::Byte(byte),
    })
}

/// The rest of a match, called with the end of the part before it.
type Rest<'a> = &'a mut dyn FnMut(usize, &mut Steps) -> bool;

fn any(all: &[Vec<Node>], text: &[u8], at: usize, steps: &mut Steps, rest: Rest<'_>) -> bool {
    all.iter().any(|nodes| sequence(nodes, text, at, steps, rest))
}

fn sequence(nodes: &[Node], text: &[u8], at: usize, steps: &mut Steps, rest: Rest<'_>) -> bool {
    let Some((node, more)) = nodes.split_first() else { return rest(at, steps) };
    one(node, text, at, steps, &mut |end, steps| sequence(more, text, end, steps, rest))
}

fn one(node: &Node, text: &[u8], at: usize, steps: &mut Steps, rest: Rest<'_>) -> bool {
    if steps.0 == 0 {
        return false;
    }
    steps.0 -= 1;
    let byte = text.get(at).copied();
    let fits = match node {
        Node::Start => return at == 0 && rest(at, steps),
        Node::End => return at == text.len() && rest(at, steps),
        Node::Group(all) => return any(all, text, at, steps, rest),
        Node::Lookahead(all, negative) => {
            let found = any(all, text, at, steps, &mut |_, _| true);
            return found != *negative && rest(at, steps);
        }
        Node::Repeat(node, least, most) => {
            return repeat(node, (*least, *most), text, at, steps, rest);
        }
        Node::Any => byte.is_some(),
        Node::Byte(wanted) => byte == Some(*wanted),
        Node::Class(ranges, negated) => byte.is_some_and(|byte| {
            ranges.iter().any(|(from, to)| (*from..=*to).contains(&byte)) != *negated
        }),
    };
    fits && rest(at + 1, steps)
}

fn repeat(
    node: &Node,
    (least, most): (u32, u32),
    text: &[u8],
    at: usize,
    steps: &mut Steps,
    rest: Rest<'_>,
) -> bool {
    let again = most > 0
        && one(node, text, at, steps, &mut |end, steps| {
            // Repeating an empty match would never end.
            (end > at || least > 0) && {
                let left =
                    (least.saturating_sub(1), most.saturating_sub(u32::from(most < u32::MAX)));
                repeat(node, left, text, end, steps, rest)
            }
        });
    again || least == 0 && rest(at, steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        let regex = Regex::parse(pattern).unwrap_or_else(|| panic!("{pattern}"));
        regex.matches(text, &mut Steps(100_000))
    }

    #[test]
    fn patterns_match_as_in_python() {
        for (pattern, text, expected) in [
            (".*self_attn.*", "model.layers.3.self_attn.q_proj", true),
            ("self_attn", "model.layers.3.self_attn.q_proj", false),
            (r".*mlp\.(gate|up|gate_up|down)_proj.*", "model.layers.0.mlp.gate_up_proj", true),
            (
                r".*mlp\.(gate|up|gate_up|down)_proj.*",
                "model.layers.1.mlp.experts.0.up_proj",
                false,
            ),
            (".*mlp.gate$", "model.layers.1.mlp.gate", true),
            (".*mlp.gate$", "model.layers.1.mlp.gate_proj", false),
            (r"model\.layers\.(?:0|1[0-9])\..*", "model.layers.17.x", true),
            (r"model\.layers\.(?:0|1[0-9])\..*", "model.layers.2.x", false),
            (r".*layers\.\d+\.mlp", "model.layers.12.mlp.up_proj", true),
            (r".*layers\.\d{2,3}\.mlp", "model.layers.7.mlp", false),
            (r"^(?!.*experts).*", "model.layers.1.mlp.experts.0.up_proj", false),
            (r"^(?!.*experts).*", "model.layers.1.mlp.up_proj", true),
            (r"a(?=b)b$", "ab", true),
            ("[^a-c]x", "ax", false),
            ("[^a-c]x", "dx", true),
            ("(a*)*b", "aaab", true),
            ("", "anything", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn rejects_malformed_and_unsupported_patterns() {
        for pattern in ["(", ")", "a**", "*", "[", r"\q", r"(?P<n>a)", "(?<=a)b", "a{2", "a{9999}"]
        {
            assert_eq!(Regex::parse(pattern), None, "{pattern}");
        }
        assert_eq!(Regex::parse(&"(".repeat(100)), None);
        assert_eq!(Regex::parse(&"a".repeat(5000)), None);
    }

    #[test]
    fn search_stops_at_step_limit() {
        let slow = Regex::parse("(a|a)*(a|a)*(a|a)*(a|a)*b").unwrap();
        let mut steps = Steps(10_000);
        assert!(!slow.matches(&"a".repeat(200), &mut steps));
        assert_eq!(steps.0, 0);
    }
}
