//! Output files for which another user created a pipe or a link.

use crate::environment::{give_to_nobody, is_root};
use crate::live::{out, reported, script};
use std::fs;
use std::os::unix::fs::symlink;

#[test]
fn report_to_pipe_is_refused_before_job_starts() {
    let output = script(
        "twelve-gpus",
        "mkfifo pipe; timeout -s KILL 60 \"$0\" run --report pipe -- touch ran; echo $?\n\
         test -e ran; echo $?\n\
         timeout -s KILL 60 \"$0\" topo --svg pipe; echo $?\n\
         timeout -s KILL 60 \"$0\" query --query-gpu=index --format=csv -f pipe; echo $?\n\
         timeout -s KILL 60 \"$0\" record pipe; echo $?",
    );
    assert_eq!(out(&output), "2\n1\n2\n2\n2\n", "{output:?}");
    assert!(reported(&output).contains("failed to write 'pipe': it is a pipe"), "{output:?}");
}

#[test]
fn symlink_of_other_user_is_not_followed() {
    if !is_root("symlink_of_other_user_is_not_followed") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (target, link) = (dir.path().join("target"), dir.path().join("link"));
    fs::write(&target, "kept\n").unwrap();
    symlink(&target, &link).unwrap();
    give_to_nobody(&link);
    let (dangling, missing) = (dir.path().join("dangling"), dir.path().join("missing"));
    symlink(&missing, &dangling).unwrap();
    give_to_nobody(&dangling);
    for link in [&link, &dangling] {
        let output = script(
            "dgx1-v100",
            &format!(
                "link='{}'\n\
                 \"$0\" run --report \"$link\" -- touch ran; echo $?; test -e ran; echo $?\n\
                 \"$0\" topo --svg \"$link\"; echo $?\n\
                 \"$0\" query --query-gpu=index --format=csv -f \"$link\"; echo $?\n\
                 \"$0\" sim labbox --count-calls \"$link\" -- \"$0\" status > /dev/null; echo $?",
                link.display()
            ),
        );
        assert_eq!(out(&output), "2\n1\n2\n2\n2\n", "{output:?}");
        assert!(reported(&output).contains("it is a symbolic link of another user"), "{output:?}");
    }
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept\n");
    assert!(!missing.exists());
}

#[test]
fn own_files_are_replaced_atomically() {
    let output = script(
        "dgx1-v100",
        "echo old > report; ln report twin; mkdir there; ln -s ../report there/link\n\
         \"$0\" run --report report -- true; grep -c exit_code report; cat twin\n\
         \"$0\" run --report there/link -- true; grep -c exit_code report; readlink there/link\n\
         \"$0\" topo --svg report 2> refused; grep -c 'already exists' refused; rm refused\n\
         \"$0\" query --query-gpu=index --format=csv,noheader -f report; wc -l < report\n\
         \"$0\" run --report /dev/null -- true; echo $?; test -c /dev/null; echo $?\n\
         \"$0\" run --report /dev/fd/3 -- true 3> through; grep -c exit_code through\n\
         ls -A",
    );
    assert_eq!(
        out(&output),
        "1\nold\n1\n../report\n1\n8\n0\n0\n1\nlet-go.py\nreport\nthere\nthrough\ntwin\n",
        "{output:?}"
    );
}
