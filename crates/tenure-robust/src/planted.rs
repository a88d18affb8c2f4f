//! Defects that the daemons of a debug build can be given, to show that the checks find them. The switch is the variable
//! `TENURE_PLANTED` (`tenure_core::planted`); a release build does not read it.

use crate::world::Kind;

/// A defect.
#[derive(Debug, Clone, Copy)]
pub struct Defect {
    /// Its name, the value of the switch.
    pub name: &'static str,
    /// Where it is planted.
    pub kind: Kind,
    /// What is wrong.
    pub what: &'static str,
}

const fn defect(name: &'static str, kind: Kind, what: &'static str) -> Defect {
    Defect { name, kind, what }
}

/// All of them.
pub const ALL: &[Defect] = &[
    defect(
        "lease-early",
        Kind::Valkey,
        "a lease is granted before the old holder's deadline",
    ),
    defect("token-falls", Kind::Valkey, "fencing tokens do not rise"),
    defect(
        "release-any-token",
        Kind::Valkey,
        "a release does not compare the token",
    ),
    defect("beat-revives", Kind::Valkey, "a beat renews an ended tenure"),
    defect(
        "claim-by-ended",
        Kind::Valkey,
        "a claim under an ended tenure is accepted",
    ),
    defect("evicted-twice", Kind::Valkey, "an eviction is counted twice"),
    defect(
        "superseded-at-once",
        Kind::Valkey,
        "a lease of a superseded tenure is granted at once",
    ),
    defect(
        "gap-off",
        Kind::Valkey,
        "an outage of the store counts as silence of its members",
    ),
    defect(
        "claims-left",
        Kind::Valkey,
        "some claims of a dead member are left behind",
    ),
    defect("ghost-shown", Kind::Valkey, "a look-up shows a dead owner as alive"),
    defect(
        "revoked-at-once",
        Kind::Valkey,
        "a lease that an operator releases is granted before its holder has noticed",
    ),
    defect(
        "one-more-holder",
        Kind::Valkey,
        "a shared lease has one more holder than places",
    ),
    defect(
        "reserve-over-capacity",
        Kind::Ledger,
        "a reserve takes a provider that has no room",
    ),
    defect(
        "not-on-disk",
        Kind::Sqlite,
        "claims are acknowledged and not written to disk",
    ),
    defect(
        "older-file-whole",
        Kind::Sqlite,
        "an older copy of the file is taken for whole",
    ),
];
