//! The parts of the program `gpuws` that are features of its package.
//!
//! The main decision is that the plain program has all that observes, diagnoses, frees and reserves
//! GPUs. What also takes long to build, and few people need, is a feature; `full` has them all. A
//! command or option of a feature that was not built is not in the help text, and its error names
//! the feature.

/// A feature of the program.
#[derive(Clone, Copy, Debug)]
struct Feature {
    /// Its name in `Cargo.toml`.
    name: &'static str,
    /// Whether this program was built with it.
    is_built: bool,
    /// Its commands, which are unknown without it.
    commands: Parts,
    /// Its options, which are refused without it.
    options: Parts,
}

/// All features but `full`, by name.
const FEATURES: [Feature; 6] = [
    feature("cuda", cfg!(feature = "cuda"), &[], &["gpuws claim --placeholder"]),
    feature("export", cfg!(feature = "export"), &["gpuws export"], &[]),
    feature("history", cfg!(feature = "history"), &["gpuws report"], HISTORIES),
    feature("kubernetes", cfg!(feature = "kubernetes"), &[], &[]),
    feature("memory-trace", cfg!(feature = "memory-trace"), RECORDINGS, &[]),
    feature("place", cfg!(feature = "place"), &["gpuws place"], &[]),
];
const HISTORIES: &[&str] = &["--replay", "gpuws record --for", "gpuws watch --history"];
const RECORDINGS: &[&str] = &["gpuws mem convert", "gpuws mem replay", "gpuws mem fit"];

type Parts = &'static [&'static str];

const fn feature(name: &'static str, is_built: bool, commands: Parts, options: Parts) -> Feature {
    Feature { name, is_built, commands, options }
}

impl Feature {
    /// Returns the command that builds this feature.
    fn remedy(&self) -> String {
        let name = self.name;
        format!(
            "not built into this program: cargo install --path crates/cli --profile dist \
             --features {name} (--features full has everything)"
        )
    }

    fn check_command(&self, word: &str) -> Result<(), String> {
        let is_last = |command: &&&str| command.rsplit(' ').next() == Some(word);
        match self.commands.iter().find(is_last) {
            Some(command) if !self.is_built => Err(format!("'{command}' was {}", self.remedy())),
            _ => Ok(()),
        }
    }

    fn check_option(&self, option: &str) -> Result<(), String> {
        let is_missing = !self.is_built && self.options.contains(&option);
        if is_missing { Err(format!("it was {}", self.remedy())) } else { Ok(()) }
    }
}

/// Checks that no feature which was not built has a command with this last word.
///
/// # Errors
/// If one has; the error names the command and the feature.
pub fn check_command(word: &str) -> Result<(), String> {
    FEATURES.iter().try_for_each(|feature| feature.check_command(word))
}

/// Checks that this program was built with an option.
///
/// # Errors
/// If it was not; the error names the feature.
pub fn check_option(option: &str) -> Result<(), String> {
    FEATURES.iter().try_for_each(|feature| feature.check_option(option))
}

/// Returns what this program lacks, in one line for the help text; `None` if it is complete.
pub fn missing() -> Option<String> {
    let missing = FEATURES.iter().filter(|feature| !feature.is_built);
    let names: Vec<&str> = missing.map(|feature| feature.name).collect();
    (!names.is_empty()).then(|| format!("Features not built: {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_part_names_its_feature_and_the_command_that_builds_it() {
        let feature = Feature {
            name: "replays",
            is_built: false,
            commands: &["gpuws mem replay"],
            options: &["--replay"],
        };
        let remedy = "not built into this program: cargo install --path crates/cli --profile dist \
                      --features replays (--features full has everything)";
        let command = format!("'gpuws mem replay' was {remedy}");
        assert_eq!(feature.check_command("replay"), Err(command));
        assert_eq!(feature.check_option("--replay"), Err(format!("it was {remedy}")));
        for word in ["mem", "gpuws", "--replay", "play"] {
            assert_eq!(feature.check_command(word), Ok(()), "{word}");
        }
        let built = Feature { is_built: true, ..feature };
        assert_eq!(
            (built.check_command("replay"), built.check_option("--replay")),
            (Ok(()), Ok(()))
        );
    }

    #[test]
    fn tests_have_every_feature() {
        assert!(FEATURES.iter().all(|feature| feature.is_built), "{FEATURES:?}");
        assert_eq!(missing(), None);
    }

    #[test]
    fn full_has_every_feature_of_the_manifest() {
        let manifest = include_str!("../Cargo.toml");
        let full = manifest.lines().find(|line| line.starts_with("full = ")).unwrap();
        let names: Vec<String> = FEATURES.map(|feature| format!("{:?}", feature.name)).into();
        assert_eq!(full, format!("full = [{}]", names.join(", ")));
    }
}
