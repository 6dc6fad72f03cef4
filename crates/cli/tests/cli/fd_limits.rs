//! `gpuws run` with a low limit of open files (`ulimit -n`): it gets a free device or fails with a
//! clear error; no device is granted twice, and nothing remains.

use crate::live::{out, reported, script};

#[test]
fn low_fd_limit_grants_free_device_or_fails() {
    let output = script(
        "twelve-gpus",
        "\"$0\" run -n 11 --not 11 -- sh -c 'touch runs; exec sleep 300' > held & front=$!\n\
         until_so test -e runs\n\
         for n in 4 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 24 28 40; do\n\
           (ulimit -n $n; exec \"$0\" run --no-wait --visible index -- \\\n\
            sh -c 'echo got $CUDA_VISIBLE_DEVICES') 2> output_text; code=$?\n\
           [ $code = 0 ] || echo \"$code $(grep -c 'Too many open files' output_text)\"\n\
         done\n\
         leases | grep -o '\"queue\":.*\\|\"count\":[0-9]*'\n\
         kill $front; wait $front\n\
         \"$0\" run -n 12 --timeout 20s -- echo all",
    );
    let output_text = out(&output);
    let lines: Vec<&str> = output_text.lines().collect();
    let [runs @ .., lease, queue, all] = &lines[..] else { panic!("{output:?}") };
    // With more inherited descriptors, there are too few to load the program.
    assert!(runs.iter().all(|line| ["got 11", "125 1", "127 0"].contains(line)), "{output_text}");
    assert!(runs.contains(&"got 11") && runs.contains(&"125 1"), "{output_text}");
    assert_eq!((*lease, *all), ("\"count\":11", "all"), "{output_text}");
    assert!(queue.starts_with("\"queue\":[]"), "{output_text}");
    assert!(!reported(&output).contains("panicked"), "{output:?}");
}
