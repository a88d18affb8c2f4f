//! Suggestions for mistyped names.

/// The most similar of these names, if it differs in at most a third of its characters.
pub(crate) fn nearest<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distances = names.map(|name| (distance(given, name), name));
    let (apart, name) = distances.min()?;
    (apart * 3 <= given.len().max(name.len())).then_some(name)
}

/// The edit distance: characters inserted, removed or replaced. O(product of the lengths).
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (n, a) in one.bytes().enumerate() {
        let mut diagonal = n;
        let mut left = n + 1;
        for (b, above) in other.bytes().zip(row.iter_mut().skip(1)) {
            let replaced = diagonal + usize::from(a != b);
            diagonal = *above;
            left = replaced.min(left + 1).min(*above + 1);
            *above = left;
        }
        if let Some(first) = row.first_mut() {
            *first = n + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_inserted_removed_and_replaced_characters() {
        for (one, other, apart) in [
            ("", "", 0),
            ("", "desk", 4),
            ("desk", "", 4),
            ("desk", "desk", 0),
            ("dsk", "desk", 1),
            ("desks", "desk", 1),
            ("disk", "desk", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(one, other), apart, "{one} {other}");
        }
    }

    #[test]
    fn nearest_name_is_a_similar_one() {
        let names = ["support", "desk", "care"];
        let nearest = |given| nearest(given, names.into_iter());
        assert_eq!(nearest("suport"), Some("support"));
        assert_eq!(nearest("dsk"), Some("desk"));
        assert_eq!(nearest("default"), None);
        assert_eq!(super::nearest("x", std::iter::empty()), None);
    }
}
