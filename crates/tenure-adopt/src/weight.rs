//! The weight of a page: its bytes, not only its number of elements, decide how long a step keeps the store busy.

use crate::PAGE;

/// The weight of a page, in bytes. A page has one element at least, of any size.
pub(crate) const WEIGHT: u64 = 256 << 10;

/// Cuts elements into pages of at most [`PAGE`] elements and about [`WEIGHT`].
pub(crate) fn pages<T>(mut elements: &[T], weigh: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let mut pages = Vec::new();
    while !elements.is_empty() {
        let (mut count, mut weight) = (0, 0);
        while count < elements.len().min(PAGE) && (count == 0 || weight + weigh(&elements[count]) as u64 <= WEIGHT) {
            weight += weigh(&elements[count]) as u64;
            count += 1;
        }
        let (page, rest) = elements.split_at(count);
        pages.push(page);
        elements = rest;
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_bounded_by_count_and_weight() {
        let large = usize::try_from(WEIGHT).unwrap();
        for (sizes, wanted) in [
            (vec![], vec![]),
            (vec![1; 450], vec![200, 200, 50]),
            (vec![large / 2; 5], vec![2, 2, 1]),
            (vec![large * 4, 1, 1, large * 4], vec![1, 2, 1]),
        ] {
            let pages: Vec<usize> = pages(&sizes, |size| *size).iter().map(|page| page.len()).collect();
            assert_eq!(pages, wanted, "{} elements", sizes.len());
        }
    }
}
