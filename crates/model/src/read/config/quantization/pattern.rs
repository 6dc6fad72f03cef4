//! Matches tensors with the names in a quantization configuration.
//!
//! A name is a module path or the start, middle or end of one, a shell pattern, or a regular
//! expression after `re:`. Multimodal repositories put a prefix before the language model, and
//! families use different names for the same part, so a tensor matches if any of its common names
//! does.

use super::regex::{Regex, Steps};
use std::collections::HashSet;

/// The maximum number of patterns that are searched. Paths are looked up in a table and are not
/// limited.
const MAX_PATTERNS: usize = 512;
/// The number of steps available to all searches for one name.
const STEPS: u64 = 200_000;

/// A list of names.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Names {
    paths: HashSet<String>,
    regexes: Vec<Regex>,
    globs: Vec<String>,
    /// The first name that is not understood.
    pub(super) unread: Option<String>,
}

impl Names {
    pub(super) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Names {
        let mut all = Names::default();
        for name in names {
            all.add(name);
        }
        all
    }

    fn add(&mut self, name: &str) {
        let is_full = self.regexes.len() + self.globs.len() >= MAX_PATTERNS;
        if let Some(pattern) = name.strip_prefix("re:") {
            match Regex::parse(pattern).filter(|_| !is_full) {
                Some(regex) => self.regexes.push(regex),
                None => self.not_read(name),
            }
        } else if name.contains(['*', '?']) {
            if is_full || name.len() > 1024 {
                self.not_read(name)
            } else {
                self.globs.push(name.to_owned())
            }
        } else {
            let name = name.trim_matches('.');
            self.paths.insert(name.strip_suffix(".weight").unwrap_or(name).to_owned());
        }
    }

    /// Adds a regular expression without its prefix.
    pub(super) fn add_regex(&mut self, pattern: &str) {
        self.add(&format!("re:{pattern}"));
    }

    fn not_read(&mut self, name: &str) {
        self.unread.get_or_insert_with(|| name.to_owned());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.regexes.is_empty() && self.globs.is_empty()
    }

    /// Returns whether one of a tensor's names is in the list.
    pub(super) fn contain(&self, names: &[String]) -> bool {
        let mut steps = Steps(STEPS);
        names.iter().any(|name| {
            self.has_path(name)
                || self.globs.iter().any(|glob| {
                    is_glob(glob.as_bytes(), name.as_bytes())
                        || name.find('.').is_some_and(|_| ends_with_glob(glob, name))
                })
                || self.regexes.iter().any(|regex| regex.matches(name, &mut steps))
        })
    }

    /// Returns whether consecutive parts of a name are in the list: `mlp.gate` of
    /// `model.layers.0.mlp.gate`.
    fn has_path(&self, name: &str) -> bool {
        if self.paths.is_empty() {
            return false;
        }
        let dots = || name.match_indices('.').map(|(at, _)| at);
        let starts = std::iter::once(0).chain(dots().map(|at| at + 1));
        starts.into_iter().any(|start| {
            let ends = dots().chain([name.len()]).filter(|end| *end > start);
            ends.into_iter().any(|end| name.get(start..end).is_some_and(|p| self.paths.contains(p)))
        })
    }
}

/// Returns whether a shell pattern matches a parent of the named module.
fn ends_with_glob(glob: &str, name: &str) -> bool {
    let mut parents = name.match_indices('.').filter_map(|(at, _)| name.get(..at));
    parents.any(|parent| is_glob(glob.as_bytes(), parent.as_bytes()))
}

/// Returns whether a shell pattern matches a text, in time proportional to the product of their
/// lengths.
fn is_glob(glob: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from, mut star) = (0, 0, None);
    while from < text.len() {
        match glob.get(at) {
            Some(b'*') => {
                star = Some((at + 1, from));
                at += 1;
            }
            Some(byte) if *byte == b'?' || text.get(from) == Some(byte) => {
                at += 1;
                from += 1;
            }
            _ => match star {
                Some((after, begun)) => {
                    at = after;
                    from = begun + 1;
                    star = Some((after, begun + 1));
                }
                None => return false,
            },
        }
    }
    glob.get(at..).is_some_and(|rest| rest.iter().all(|byte| *byte == b'*'))
}

/// Returns the names that repositories use for a tensor's module.
pub(super) fn aliases(tensor: &str) -> Vec<String> {
    const PARTS: &[(&str, &str)] = &[
        (".shared_expert.", ".shared_experts."),
        (".shared_experts.", ".shared_expert."),
        (".mlp.", ".block_sparse_moe."),
        (".mlp.", ".feed_forward."),
        (".mlp.", ".moe."),
        (".mlp.", ".mixer."),
        (".self_attn.", ".attention."),
        (".self_attn.", ".attn."),
        (".self_attn.", ".linear_attn."),
        (".self_attn.", ".mixer."),
        (".mamba.", ".mixer."),
        (".gate_proj", ".gate_up_proj"),
        (".up_proj", ".gate_up_proj"),
        (".q_proj", ".qkv_proj"),
        (".k_proj", ".qkv_proj"),
        (".v_proj", ".qkv_proj"),
        (".gate_up_proj", ".gate_proj"),
        (".gate_up_proj", ".up_proj"),
    ];
    const EXPERTS: &[(&str, &str)] =
        &[("gate_proj", "w1"), ("down_proj", "w2"), ("up_proj", "w3"), ("gate_up_proj", "w1")];
    let module = tensor.strip_suffix(".weight").unwrap_or(tensor);
    let mut names = vec![module.to_owned()];
    for (from, to) in PARTS {
        if module.contains(from) {
            names.push(module.replacen(from, to, 1));
        }
    }
    for at in 0..names.len() {
        let Some((before, after)) = names
            .get(at)
            .and_then(|name| name.split_once(".experts."))
            .filter(|(_, after)| !after.starts_with(|first: char| first.is_ascii_digit()))
        else {
            continue;
        };
        let mut more = vec![format!("{before}.experts.0.{after}")];
        for (from, to) in EXPERTS {
            if after == *from {
                more.push(format!("{before}.experts.0.{to}"));
            }
        }
        names.extend(more);
    }
    let bare: Vec<String> =
        names.iter().filter_map(|name| name.strip_prefix("model.")).map(str::to_owned).collect();
    names.extend(bare.iter().map(|name| format!("model.language_model.{name}")));
    if module.starts_with("model.") || module == "lm_head" {
        let nested = names.iter().filter(|name| !name.contains("language_model"));
        let nested: Vec<String> = nested.map(|name| format!("language_model.{name}")).collect();
        names.extend(nested);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn means(name: &str, tensor: &str) -> bool {
        Names::new([name]).contain(&aliases(tensor))
    }

    #[test]
    fn names_match_whole_path_components() {
        let expert = "model.layers.7.mlp.experts.gate_proj.weight";
        let query = "model.layers.7.self_attn.q_proj.weight";
        for (name, tensor, expected) in [
            ("lm_head", "lm_head.weight", true),
            ("lm_head", query, false),
            ("gate", expert, false),
            ("gate", "model.layers.7.mlp.gate.weight", true),
            ("mlp.gate", "model.layers.7.mlp.gate.weight", true),
            ("model.layers.7", query, true),
            ("model.layers.7.", query, true),
            ("model.layers.70", query, false),
            ("self_attn", query, true),
            ("model.language_model.layers.7.self_attn.q_proj", query, true),
            ("language_model.model.layers.7.self_attn.q_proj", query, true),
            ("model.layers.7.block_sparse_moe.experts.0.w1", expert, true),
            ("model.layers.7.self_attn.qkv_proj", query, true),
            ("*lm_head*", "lm_head.weight", true),
            ("*self_attn*", query, true),
            ("model.layers.7*", query, true),
            ("model.layers.?.self_attn", query, true),
            ("*.mlp.*", query, false),
            (r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", expert, false),
            (r"re:.*mlp\.experts\.\d+\.gate_proj", expert, true),
            ("re:language_model.*", query, true),
            (r"re:.*experts\.\d+\.up_proj", "model.layers.1.mlp.experts.gate_up_proj", true),
            ("w1", "model.layers.1.mlp.experts.gate_up_proj", true),
        ] {
            assert_eq!(means(name, tensor), expected, "{name} {tensor}");
        }
    }

    #[test]
    fn reports_first_invalid_name() {
        let names = Names::new(["lm_head", "re:(?<=a)b", "re:("]);
        assert_eq!(names.unread.as_deref(), Some("re:(?<=a)b"));
        let many: Vec<String> = (0..600).map(|at| format!("re:a{at}")).collect();
        assert_eq!(Names::new(many.iter().map(String::as_str)).unread.as_deref(), Some("re:a512"));
    }
}
