//! The name that a mistyped one was probably meant to be.

use strsim::normalized_damerau_levenshtein;

/// The least likeness of a name that is worth naming.
const ALIKE: f64 = 0.6;
/// The number of names that a message lists.
const SHOWN: usize = 10;

/// The most similar of these names, if it is similar at all.
pub(crate) fn nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let alike = names
        .into_iter()
        .map(|name| (normalized_damerau_levenshtein(given, name), name));
    let (likeness, name) = alike.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    (likeness >= ALIKE).then_some(name)
}

/// `no group "ingset"; did you mean "ingest"? groups: chat, ingest`: for a name of which there is nothing. `flag` is how
/// another one is chosen, `first` how the first one comes to be.
pub(crate) fn unknown(noun: &str, given: &str, names: &[&str], flag: &str, first: &str) -> String {
    if names.is_empty() {
        return format!("no {noun} \"{given}\": there are no {noun}s yet; {first}");
    }
    let shown = names[..names.len().min(SHOWN)].join(", ");
    let more = if names.len() > SHOWN { ", …" } else { "" };
    match nearest(given, names.iter().copied()) {
        Some(near) => format!("no {noun} \"{given}\"; did you mean \"{near}\"? {noun}s: {shown}{more}"),
        None => format!("no {noun} \"{given}\"; choose one with {flag}: {shown}{more}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_a_similar_one() {
        let names = ["chat", "ingest", "workers"];
        assert_eq!(nearest("ingset", names), Some("ingest"));
        assert_eq!(nearest("worker", names), Some("workers"));
        assert_eq!(nearest("default", names), None);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_that_exist() {
        let message = |given, names: &[&str]| unknown("group", given, names, "--group", "`tenure join` makes one");
        assert_eq!(
            message("ingset", &["chat", "ingest"]),
            "no group \"ingset\"; did you mean \"ingest\"? groups: chat, ingest"
        );
        assert_eq!(message("x", &["chat"]), "no group \"x\"; choose one with --group: chat");
        assert_eq!(
            message("x", &[]),
            "no group \"x\": there are no groups yet; `tenure join` makes one"
        );
        let many: Vec<String> = (0..12).map(|n| format!("g{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(message("default", &many).ends_with("g8, g9, …"));
    }
}
