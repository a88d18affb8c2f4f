//! Random calls on sessions.

use serde_json::{Value, json};

use super::draw::{ALL, ms, tenure};
use super::known::Known;
use crate::call::Op;
use crate::conformance::Chance;
use crate::id::{Alias, ConnectionId, SessionId};
use crate::session::{
    Attach, Attaches, CountSessions, Data, DeleteSession, Detach, Detaches, ListOrphans, PatchSession, SessionByAlias,
    SessionOf, SessionState, Sessions,
};

fn session(n: usize) -> SessionId {
    SessionId::new(format!("s{n}")).expect("a name")
}

fn alias(n: usize) -> Alias {
    Alias::new(format!("a{n}")).expect("a name")
}

fn data(chance: &mut Chance) -> Data {
    let fields: Vec<(&str, Value)> = match chance.below(4) {
        0 => vec![("x", json!(chance.below(9)))],
        1 => vec![("x", Value::Null)],
        2 => vec![("y", json!({"a": [1, "b"]})), ("x", json!(true))],
        _ => Vec::new(),
    };
    let fields = fields.into_iter();
    fields.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn attach(chance: &mut Chance) -> Attach {
    let connection = ConnectionId::new(format!("c{}", chance.below(3))).expect("a name");
    Attach {
        alias: (chance.below(3) == 0).then(|| alias(chance.below(3))),
        data: data(chance),
        grace: (chance.below(3) == 0).then(|| ms(1_000)),
        resume_only: chance.below(5) == 0,
        ..Attach::new(session(chance.below(4)), connection)
    }
}

pub(super) fn step(chance: &mut Chance, known: &Known) -> Op {
    match chance.below(8) {
        0..=3 => Op::Attach(Attaches {
            tenure: tenure(chance, known),
            attaches: (0..=chance.below(2)).map(|_| attach(chance)).collect(),
        }),
        4 | 5 => {
            let back = chance.below(4);
            let known = match known.attached.iter().rev().nth(back) {
                Some((tenure, detach)) => (tenure.clone(), detach.clone()),
                None => {
                    let Attach {
                        session, connection, ..
                    } = attach(chance);
                    let epoch = None;
                    (
                        tenure(chance, known),
                        Detach {
                            session,
                            connection,
                            epoch,
                        },
                    )
                }
            };
            Op::Detach(Detaches {
                tenure: known.0,
                detaches: vec![known.1],
            })
        }
        6 => Op::PatchSession(PatchSession {
            session: session(chance.below(4)),
            tenure: (chance.below(3) == 0).then(|| tenure(chance, known)),
            data: data(chance),
        }),
        _ => Op::DeleteSession(DeleteSession {
            session: session(chance.below(4)),
        }),
    }
}

pub(super) fn look(chance: &mut Chance) -> Op {
    let n = chance.below(4);
    match chance.below(6) {
        0 | 1 => Op::Session(SessionOf { session: session(n) }),
        2 => Op::SessionByAlias(SessionByAlias { alias: alias(n) }),
        3 => Op::Sessions(Sessions {
            state: SessionState::ALL.get(n).copied(),
            older_than: ms(0),
            page: ALL,
        }),
        4 => Op::Orphans(ListOrphans {
            overdue: ms(0),
            limit: 1_000,
        }),
        _ => Op::SessionStats(CountSessions),
    }
}
