//! The handle of a process, tested with a shell.

use super::*;

const SOON: Duration = Duration::from_secs(30);

fn shell(script: &str) -> Process {
    Process::spawn("shell", |dir| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(dir);
        command
    })
    .unwrap()
}

fn file_exists(process: &Process, name: &str) -> Result<()> {
    process.dir().join(name).metadata().map(drop).context("no such file")
}

fn is_alive(pid: u32) -> bool {
    // A zombie counts as dead.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .trim_start()
            .starts_with('Z')
    })
}

#[test]
fn is_ready_when_the_probe_succeeds() {
    let process = shell("touch ready; sleep 60");
    process.wait_ready(SOON, || file_exists(&process, "ready")).unwrap();
    assert!(process.is_running());
}

#[test]
fn an_early_end_is_an_error_with_the_log() {
    let process = shell("echo out of paper; exit 3");
    let error = process.wait_ready(SOON, || bail!("never")).unwrap_err().to_string();
    assert!(
        error.contains("ended before it was ready") && error.contains("out of paper"),
        "{error}"
    );
}

#[test]
fn a_missed_deadline_is_an_error_with_the_probes_reason() {
    let process = shell("echo hello; touch ready; sleep 60");
    process.wait_ready(SOON, || file_exists(&process, "ready")).unwrap();
    let error = process
        .wait_ready(Duration::from_millis(10), || bail!("port closed"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("port closed") && error.contains("hello"), "{error}");
}

#[test]
fn dropping_kills_the_children_too() {
    let process = shell("sleep 60 & echo $! > child; touch ready; wait");
    process.wait_ready(SOON, || file_exists(&process, "ready")).unwrap();
    let child: u32 = fs::read_to_string(process.dir().join("child"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!(is_alive(child));
    drop(process);
    crate::wait::until("the child is dead", SOON, || !is_alive(child));
}

#[test]
fn terminate_runs_the_exit_handler_of_a_paused_process() {
    let process = shell("trap 'echo bye; exit 7' TERM; sleep 60 & touch ready; wait");
    process.wait_ready(SOON, || file_exists(&process, "ready")).unwrap();
    process.pause().unwrap();
    let status = process.terminate(SOON).unwrap();
    assert_eq!(status.code(), Some(7));
    assert!(process.log().contains("bye"));
    assert!(process.pid().is_none());
    assert!(process.pause().is_err());
}

#[test]
fn terminate_succeeds_when_the_process_ends_immediately() {
    for _ in 0..50 {
        let process = shell("exec sleep 60");
        let status = process.terminate(SOON).unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
    }
}

#[test]
fn dropping_kills_children_of_an_ended_process() {
    let process = shell("sleep 60 & echo $! > child");
    assert!(process.wait(SOON).unwrap().success());
    let child = fs::read_to_string(process.dir().join("child")).unwrap();
    let child: u32 = child.trim().parse().unwrap();
    assert!(is_alive(child));
    drop(process);
    crate::wait::until("the child is dead", SOON, || !is_alive(child));
}

#[test]
fn a_paused_process_runs_again_only_after_resume() {
    let process = shell("while :; do echo x >> ticks; sleep 0.005; done");
    let ticks = || fs::metadata(process.dir().join("ticks")).map_or(0, |meta| meta.len());
    process.wait_ready(SOON, || file_exists(&process, "ticks")).unwrap();
    process.pause().unwrap();
    let before = ticks();
    thread::sleep(Duration::from_millis(50));
    assert_eq!(ticks(), before);
    process.resume().unwrap();
    crate::wait::until("it ticks again", SOON, || ticks() > before);
}

#[test]
fn restarts_in_the_same_directory_with_another_pid() {
    let process = shell("touch ready; sleep 60");
    let first = process.pid().unwrap();
    process.wait_ready(SOON, || file_exists(&process, "ready")).unwrap();
    process.restart().unwrap();
    assert_ne!(process.pid().unwrap(), first);
    assert!(!is_alive(first));
    file_exists(&process, "ready").unwrap();
}

#[test]
fn the_guard_kills_the_group_when_its_pipe_closes() {
    let process = shell("sleep 60");
    let pid = process.pid().unwrap();
    // The kernel does this to the test's end of the pipe when the test is killed.
    drop(process.lock().as_mut().unwrap().guard.stdin.take());
    crate::wait::until("the guard has acted", SOON, || !is_alive(pid));
}
