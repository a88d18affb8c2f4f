//! Defects that a debug build has if it is told to, so that the tests of whole daemons (`cargo xtask robust --planted`)
//! show that they find them. A release build has none and reads no variable.

/// Whether the variable `TENURE_PLANTED` names this defect, in a debug build.
#[must_use]
pub fn planted(defect: &str) -> bool {
    named().is_some_and(|named| named == defect)
}

/// The defect that this process has.
#[must_use]
pub fn named() -> Option<&'static str> {
    #[cfg(debug_assertions)]
    {
        static NAMED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
        NAMED.get_or_init(|| std::env::var("TENURE_PLANTED").ok()).as_deref()
    }
    #[cfg(not(debug_assertions))]
    None
}
