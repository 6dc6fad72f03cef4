//! TensorFlow: growth by a variable, but limits only by lines of code.

use super::{Advice, Bound, Framework, Keeper, Snippet, UNKNOWN_TOTAL, Version};

pub(super) const GROWTH: &str = "TF_FORCE_GPU_ALLOW_GROWTH";
pub(super) const ALLOCATOR: &str = "TF_GPU_ALLOCATOR";

/// The first version with the current name of the limit.
const WITH_LOGICAL_DEVICES: Version = Version { major: 2, minor: 4 };

impl Bound<'_> {
    pub(super) fn tensorflow(&self, version: Option<Version>, advice: &mut Advice) {
        // TensorFlow honours only these two values, and ignores any other.
        match self.had(GROWTH).as_deref() {
            Some("true") => {}
            Some("false") => advice.note(format!(
                "{GROWTH}=false is kept: without the code below TensorFlow allocates nearly all \
                    device memory at startup"
            )),
            had => {
                if had.is_some() {
                    advice.note(format!("{GROWTH} was neither true nor false and has no effect"));
                }
                advice.set(GROWTH, "true", Keeper::Nobody);
            }
        }
        advice.note("TensorFlow has no environment variable for a limit; set it in the program");
        if self.had(ALLOCATOR).is_some_and(|name| name.trim() == "cuda_malloc_async") {
            advice.note(format!(
                "{ALLOCATOR}=cuda_malloc_async is set: the limit then applies only to the memory \
                 that the pool retains"
            ));
        }
        match self.tensorflow_lines(version) {
            Some(lines) => {
                advice.code.push(Snippet { framework: Framework::TensorFlow, lines });
            }
            None => advice.note(format!("{UNKNOWN_TOTAL}, and so is TensorFlow's share of it")),
        }
    }

    /// Returns the lines for the program; `None` if they need an unknown fraction.
    fn tensorflow_lines(&self, version: Option<Version>) -> Option<Vec<String>> {
        let [configuration, set] = match version {
            Some(Version { major: 0 | 1, .. }) => {
                let fraction = self.fraction()?;
                return Some(vec![
                    "import tensorflow as tf".to_owned(),
                    format!("options = tf.GPUOptions(per_process_gpu_memory_fraction={fraction})"),
                    "session = tf.Session(config=tf.ConfigProto(gpu_options=options))".to_owned(),
                ]);
            }
            Some(version) if version < WITH_LOGICAL_DEVICES => [
                "experimental.VirtualDeviceConfiguration",
                "experimental.set_virtual_device_configuration",
            ],
            _ => ["LogicalDeviceConfiguration", "set_logical_device_configuration"],
        };
        let limit = self.allocators().mib();
        Some(vec![
            "import tensorflow as tf".to_owned(),
            "for gpu in tf.config.list_physical_devices(\"GPU\"):".to_owned(),
            format!("    limit = tf.config.{configuration}(memory_limit={limit})"),
            format!("    tf.config.{set}(gpu, [limit])"),
        ])
    }
}
