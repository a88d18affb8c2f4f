//! Defects of scripts, for debug builds that are told to have one; see [`tenure_core::planted`].

const DEFECTS: &str = include_str!("scripts/planted.lua");

/// The text of a script, with the defect that this process has.
pub(crate) fn alter(script: &str, text: String) -> String {
    let Some(named) = tenure_core::planted::named() else {
        return text;
    };
    let edit = DEFECTS.split("\n---- ").skip(1).find_map(|defect| {
        let (head, edit) = defect.split_once('\n')?;
        let (name, of) = head.split_once(" in ").unwrap_or((head, script));
        (name == named && of == script).then_some(edit)
    });
    match edit.and_then(|edit| edit.split_once("\n---->\n")) {
        Some((from, to)) => text.replace(from, to.trim_end_matches('\n')),
        None => text,
    }
}
