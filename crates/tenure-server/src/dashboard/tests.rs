//! What the files of the page may and may not be.

use super::*;

fn text(name: &str) -> &'static str {
    let file = FILES.iter().find(|file| file.name == name).expect("a file");
    std::str::from_utf8(file.bytes).expect("text")
}

fn asked(tag: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(IF_NONE_MATCH, HeaderValue::from_str(tag).expect("a header"));
    headers
}

#[test]
fn cached_file_is_answered_304() {
    let first = file("index.html", &HeaderMap::new()).expect("the page");
    assert_eq!(first.status(), StatusCode::OK);
    let tag = first.headers()[ETAG].to_str().expect("text").to_owned();
    for known in [
        tag.clone(),
        format!("W/{tag}"),
        format!("\"other\", {tag}"),
        "*".to_owned(),
    ] {
        let again = file("index.html", &asked(&known)).expect("the page");
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{known}");
        assert_eq!(again.headers()[ETAG], tag.as_str());
    }
    let other = file("index.html", &asked("\"other\"")).expect("the page");
    assert_eq!(other.status(), StatusCode::OK);
}

#[test]
fn only_files_of_the_page_are_served() {
    for name in ["", "nothing.js", "../dashboard.rs", "tests.rs", "index.html/"] {
        assert!(file(name, &HeaderMap::new()).is_none(), "{name}");
    }
}

#[test]
fn page_creates_no_markup_from_text() {
    let scripts = FILES.iter().filter(|file| file.kind == SCRIPT);
    for script in scripts {
        let text = text(script.name);
        for banned in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "localStorage.token",
            "http://",
            "https://",
            "EventSource(",
        ] {
            // SVG namespaces look like addresses but are never requested.
            let plain = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!plain.contains(banned), "{} has {banned}", script.name);
        }
    }
    let page = text("index.html");
    for banned in ["<script>", " style=", " onclick=", "//cdn", "http://", "https://"] {
        assert!(!page.contains(banned), "the page has {banned}");
    }
    assert!(!text("style.css").contains("url("), "the style asks for other files");
}

#[test]
fn the_page_asks_for_every_script_at_once() {
    let page = text("index.html");
    for script in FILES.iter().filter(|file| file.kind == SCRIPT) {
        let link = format!("dashboard/{}\"", script.name);
        assert!(page.contains(&link), "{} would be found one import later", script.name);
    }
}

#[test]
fn the_page_is_small() {
    let total: usize = FILES.iter().map(|file| file.bytes.len()).sum();
    assert!(total < 215_000, "{total} bytes");
}
