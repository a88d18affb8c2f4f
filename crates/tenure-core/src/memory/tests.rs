//! The model of stored rows, over random histories.

mod acts;
mod gate;
mod kept;
mod locks;
mod lost;
mod reload;
mod scale;
mod waits;

use proptest::prelude::*;

use acts::Act;

use crate::call::Reply;
use crate::error::Result;
use crate::sweep::GroupStatus;

/// A random history: calls, and the outcomes of commits.
fn history() -> impl Strategy<Value = Vec<Act>> {
    let act = (0..100u8, any::<u16>(), 0..14u8, 0..8u8);
    prop::collection::vec(
        act.prop_map(|(what, one, two, three)| Act { what, one, two, three }),
        1..80,
    )
}

/// A reply, for comparison: errors have no equality. Omits the lazy index time, which may be early.
fn shown(reply: Result<Reply>) -> String {
    let reply = reply.map(|reply| match reply {
        Reply::Status(status) => Reply::Status(GroupStatus {
            next_due: None,
            ..status
        }),
        reply => reply,
    });
    format!("{reply:?}")
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}
