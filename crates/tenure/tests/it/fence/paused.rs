//! A holder that is paused and resumes after a takeover: real leases in Valkey, a real process stopped with SIGSTOP,
//! and three real sinks. Run it with `--no-capture` to read the story.
#![allow(clippy::print_stdout, reason = "the guide shows the story")]

use std::cell::OnceCell;
use std::time::Duration;

use tenure::fence::Token;
use tenure::{Acquire, ClientSettings, JoinOptions, LeaseGuard, Membership, OpenOptions, Tenure, Verdict};
use tenure_core::lease::RevokeOf;
use tenure_core::store::Call;
use tenure_testkit::wait::until_async;
use tenure_testkit::{Process, own_test};

use crate::fence::sinks::{DEVICE, NAMES, Sinks, Writer};

/// The ttl of the paused holder: longer than a short stall of the machine.
const TTL: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_secs(60);
/// How often the holder writes before it is paused.
const FIRST: usize = 3;

async fn join(store: &str, member: &str, ttl: Duration) -> (Tenure, Membership) {
    let options = OpenOptions {
        // A single call must not fail during a short stall of the machine.
        request_timeout: Some(TTL),
        ..OpenOptions::default()
    };
    let tenure = Tenure::connect_with(store, options, ClientSettings::default())
        .await
        .unwrap();
    let options = JoinOptions {
        ttl,
        interval: Some(TTL / 3),
        ..JoinOptions::named(member).unwrap()
    };
    let membership = tenure.group("fleet").unwrap().join(options).await.unwrap();
    (tenure, membership)
}

async fn acquire(membership: &Membership) -> LeaseGuard {
    let leases = membership.leases();
    let guard = OnceCell::new();
    until_async("the lease is ours", SOON, async || {
        if let Ok(Acquire::Granted(granted)) = leases.acquire(DEVICE).await {
            guard.set(granted).unwrap();
        }
        guard.get().is_some()
    })
    .await;
    guard.into_inner().unwrap()
}

fn say(who: &str, what: &str) {
    println!("{who}: {what}");
}

/// The outcomes of a write.
fn describe_outcomes(who: &str, outcomes: &[Result<(), String>; 3]) -> Vec<String> {
    let describe = |(sink, outcome): (&&str, &Result<(), String>)| {
        let outcome = outcome.as_ref().map_or_else(String::as_str, |()| "written");
        format!("{who}:   {sink}: {outcome}")
    };
    NAMES.iter().zip(outcomes).map(describe).collect()
}

/// The body of the holder's process; as a test it does nothing.
#[tokio::test]
async fn holder_process() {
    let given = |name| std::env::var(format!("FENCE_HOLDER_{name}"));
    let (Ok(store), Ok(addresses), Ok(manner)) = (given("STORE"), given("SINKS"), given("MANNER")) else {
        return;
    };
    let (_tenure, membership) = join(&store, "a", TTL).await;
    let guard = acquire(&membership).await;
    let token = guard.token();
    say("a", &format!("acquired {DEVICE} with the token {token}"));
    let mut writer = Writer::new(&addresses).await;
    for _ in 0..FIRST {
        assert_eq!(writer.write(token).await, [Ok(()), Ok(()), Ok(())]);
    }
    say("a", &format!("wrote {FIRST} times to each sink"));
    if manner == "careful" {
        until_async("the lease is certainly held", SOON, async || {
            guard.verdict() == Verdict::Held
        })
        .await;
        look_then_write(&guard, &mut writer).await;
    } else {
        only_write(token, &mut writer).await;
    }
    say("a", "done");
}

/// Checks the verdict before every write, and is paused between check and write.
async fn look_then_write(guard: &LeaseGuard, writer: &mut Writer) {
    while guard.verdict() == Verdict::Held {
        say("a", "the verdict is Held, so it is going to write ...");
        writer.wait_at_gate();
        say("a", &format!("... and writes with the token {}", guard.token()));
        for line in describe_outcomes("a", &writer.write(guard.token()).await) {
            println!("{line}");
        }
    }
    say(
        "a",
        &format!("the verdict is {:?}, so it stops writing", guard.verdict()),
    );
}

/// Never checks. It is paused anywhere, also in the middle of a write.
async fn only_write(token: Token, writer: &mut Writer) {
    let mut refused = [0; 3];
    while refused.iter().any(|refused| *refused < 50) {
        for (outcome, refused) in writer.write(token).await.iter().zip(&mut refused) {
            *refused += usize::from(outcome.is_err());
        }
    }
}

fn spawn_holder(sinks: &Sinks, manner: &str) -> Process {
    Process::spawn("a", |_| {
        let mut command = own_test(module_path!(), "holder_process");
        command.env("FENCE_HOLDER_STORE", sinks.valkey.url());
        command.env("FENCE_HOLDER_SINKS", sinks.addresses());
        command.env("FENCE_HOLDER_MANNER", manner);
        command
    })
    .unwrap()
}

/// How B gets the lease of the paused holder.
#[derive(Clone, Copy, PartialEq)]
enum Takeover {
    /// A lapses.
    Lapse,
    /// An operator releases it while B waits.
    OperatorRelease,
}

/// An operator releases the lease, and B waits for it. It is granted when the trust of A is over, not before.
async fn acquire_released(tenure: &Tenure, membership: &Membership) -> LeaseGuard {
    let (lease, of) = (DEVICE.parse().unwrap(), RevokeOf::Holder("a".parse().unwrap()));
    let (clock, asked) = (tenure.clock(), tenure.clock().mono());
    let revoked = tenure
        .store()
        .revoke_lease(membership.group(), &lease, of, Call::default());
    let revoked = revoked.await.unwrap();
    let answer = membership.leases().acquire_within(DEVICE, SOON).await.unwrap();
    let waited = clock.mono().since(asked);
    assert!(waited >= revoked.free_in, "{waited:?} after {revoked:?}");
    assert!(!revoked.free_in.is_zero(), "A may still trust it");
    answer.granted().expect("a lease that was waited for")
}

/// Lets A hold and write, pauses it, lets B take over and write, and resumes A.
async fn stop_a_holder_that_is(manner: &str, takeover: Takeover) {
    let Some(sinks) = tokio::task::spawn_blocking(Sinks::start).await.unwrap() else {
        return;
    };
    sinks.prepare().await;
    let a = spawn_holder(&sinks, manner);
    // A careful holder waits at the gate; a careless one is anywhere.
    until_async("a has written", SOON, async || {
        assert!(a.is_running(), "{}", a.log());
        sinks.local.has_waiter() || (manner == "careless" && sinks.logs().await.iter().all(|log| log.len() > 20))
    })
    .await;
    a.pause().unwrap();

    // The ttl is long enough for the rest of the test.
    let (tenure, membership) = join(&sinks.valkey.url(), "b", TTL * 12).await;
    let stopped = membership.valid_until();
    let guard = match takeover {
        Takeover::Lapse => acquire(&membership).await,
        Takeover::OperatorRelease => acquire_released(&tenure, &membership).await,
    };
    let mut writer = Writer::new(&sinks.addresses()).await;
    let before = sinks.logs().await;
    let outcomes = writer.write(guard.token()).await;
    assert_eq!(outcomes, [Ok(()), Ok(()), Ok(())]);
    until_async("b has beaten for twice the ttl", SOON, async || {
        membership.valid_until() > stopped + TTL * 2
    })
    .await;
    let lines_before = a.log().lines().count();
    sinks.local.open();
    a.resume().unwrap();
    let status = a.wait(SOON).unwrap();
    assert!(status.success(), "{}", a.log());
    assert_eq!(writer.write(guard.token()).await, [Ok(()), Ok(()), Ok(())]);
    until_async("b still holds it", SOON, async || guard.verdict() == Verdict::Held).await;

    let log = a.log();
    let of_a = |line: &&str| line.starts_with("a: ") && *line != "a: done";
    let (first, last): (Vec<_>, Vec<_>) = log.lines().enumerate().partition(|(at, _)| *at < lines_before);
    let lines = |part: Vec<(usize, &str)>| -> Vec<String> {
        let lines = part.into_iter().map(|(_, line)| line);
        lines.filter(of_a).map(str::to_owned).collect()
    };
    let mut story = lines(first);
    story.push("a: is stopped (SIGSTOP)".to_owned());
    story.push(format!("b: acquired {DEVICE} with the token {}", guard.token()));
    story.extend(describe_outcomes("b", &outcomes));
    story.push(format!(
        "a: runs on (SIGCONT) after more than {:?}, twice the ttl",
        TTL * 2
    ));
    story.extend(lines(last));
    story.iter().for_each(|line| println!("{line}"));

    for ((sink, before), after) in NAMES.iter().zip(before).zip(sinks.logs().await) {
        let old = before[0];
        assert!(old < guard.token().get() && before.len() >= FIRST);
        assert!(before.iter().all(|token| *token == old), "{sink}");
        // All writes of A, then the two of B, and no other.
        let expected = [before, vec![guard.token().get(); 2]].concat();
        assert_eq!(after, expected, "{sink}");
    }
    if manner == "careful" && takeover == Takeover::Lapse {
        crate::fence::guide::assert_story(&story);
    }
    guard.release().await.unwrap();
    membership.leave().await.unwrap();
    tenure.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fence_rejects_writes_from_paused_holder() {
    stop_a_holder_that_is("careful", Takeover::Lapse).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fence_rejects_writes_from_holder_that_never_checks() {
    stop_a_holder_that_is("careless", Takeover::Lapse).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fence_rejects_writes_after_an_operator_release() {
    stop_a_holder_that_is("careless", Takeover::OperatorRelease).await;
}
