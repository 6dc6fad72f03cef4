//! The encodings of each matrix of a block, in a line per model and mixture.

use super::*;

const PARTS: [(&str, Part); 8] = [
    ("q", Part::Query),
    ("k", Part::Key),
    ("v", Part::Value),
    ("output", Part::AttentionOutput),
    ("gate", Part::Gate),
    ("up", Part::Up),
    ("down", Part::Down),
    ("other", Part::Other),
];

const RULES: [&str; 20] = [
    "Q2_K", "Q2_K_S", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_0", "Q4_K_S", "Q4_K_M", "Q5_0", "Q5_K_S",
    "Q5_K_M", "IQ1_S", "IQ2_XS", "IQ2_M", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M", "IQ4_XS",
    "IQ4_NL",
];

fn facts(layers: u64, sharing: u64, experts: u64, is_falcon: bool) -> Facts {
    Facts { layers, values: (0..layers).collect(), sharing, experts, is_falcon, has_output: true }
}

/// Returns the encodings of the layers in order, such as `2 Q6_K, 30 Q4_K`.
fn of_layers(mixture: Mixture, part: Part, facts: &Facts) -> String {
    let mut runs: Vec<(u64, &str)> = Vec::new();
    for layer in 0..facts.layers {
        let encoding = mixture.matrix(part, layer, facts);
        match runs.last_mut() {
            Some((count, last)) if *last == encoding => *count += 1,
            _ => runs.push((1, encoding)),
        }
    }
    let runs: Vec<String> = runs.iter().map(|(count, of)| format!("{count} {of}")).collect();
    runs.join(", ")
}

#[test]
fn matrices_have_the_encodings_of_llama_cpp() {
    let mut lines = String::new();
    for (name, facts) in [
        ("Llama", facts(32, 1, 0, false)),
        ("Llama 70B", facts(80, 8, 0, false)),
        ("Falcon", facts(32, 71, 0, true)),
        ("Mixtral", facts(32, 4, 8, false)),
    ] {
        for rules in RULES {
            let mixture = Mixture { rules, base: "base", ends: None };
            let all = format!("{} base", facts.layers);
            let parts = PARTS.iter().map(|(part, of)| (part, of_layers(mixture, *of, &facts)));
            let parts = parts.filter(|(_, encodings)| *encodings != all);
            let parts = parts.map(|(part, encodings)| format!("{part}: {encodings}"));
            let line = std::iter::once(format!("{name} {rules}")).chain(parts);
            lines += &(line.collect::<Vec<_>>().join(" | ") + "\n");
        }
    }
    let expected = include_str!("encodings.txt");
    for (line, expected) in lines.lines().zip(expected.lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(lines, expected);
}
