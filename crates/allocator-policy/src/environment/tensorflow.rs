//! TensorFlow: growth by a variable, a limit by lines of code alone.

use super::{Advice, Bound, Framework, Keeper, Snippet};

pub(super) const GROWTH: &str = "TF_FORCE_GPU_ALLOW_GROWTH";
pub(super) const ALLOCATOR: &str = "TF_GPU_ALLOCATOR";

impl Bound<'_> {
    pub(super) fn tensorflow(&self, advice: &mut Advice) {
        // It knows these two words and goes on as if nothing was set for any other.
        match self.had(GROWTH).as_deref() {
            Some("true") => {}
            Some("false") => advice.note(format!(
                "{GROWTH}=false is left as it is: without the lines below TensorFlow takes nearly \
                 all of the device at its start"
            )),
            had => {
                if had.is_some() {
                    advice
                        .note(format!("{GROWTH} was neither true nor false, which means nothing"));
                }
                advice.set(GROWTH, "true", Keeper::Nobody);
            }
        }
        advice.note("TensorFlow takes no limit from its environment: the program must set it");
        if self.had(ALLOCATOR).is_some_and(|name| name.trim() == "cuda_malloc_async") {
            advice.note(format!(
                "{ALLOCATOR}=cuda_malloc_async is set: the limit is then only what the pool keeps, \
                 not what it may take"
            ));
        }
        advice.code.push(Snippet {
            framework: Framework::TensorFlow,
            lines: vec![
                "import tensorflow as tf".to_owned(),
                "for gpu in tf.config.list_physical_devices(\"GPU\"):".to_owned(),
                format!(
                    "    limit = tf.config.LogicalDeviceConfiguration(memory_limit={})",
                    self.allocators().mib()
                ),
                "    tf.config.set_logical_device_configuration(gpu, [limit])".to_owned(),
            ],
        });
    }
}
