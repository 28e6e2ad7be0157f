//! Every link of a page leads somewhere: to a file that exists, and to a heading that it has.

use super::{PAGES, root};
use std::{fs, path::Path};

#[test]
fn every_link_leads_somewhere() {
    let others = ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];
    let mut wrong = Vec::new();
    for page in PAGES.iter().chain(&others) {
        let content = fs::read_to_string(root().join(page)).unwrap();
        for target in targets(&prose(&content)).filter(|target| !is_elsewhere(target)) {
            if !leads_somewhere(page, target) {
                wrong.push(format!("{page}: {target}"));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}

fn leads_somewhere(page: &str, target: &str) -> bool {
    let (file, heading) = target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
    let here = root().join(page);
    let path = if file.is_empty() { here } else { here.parent().unwrap().join(file) };
    match heading {
        None => path.exists(),
        Some(heading) => headings(&path).iter().any(|found| found == heading),
    }
}

fn is_elsewhere(target: &str) -> bool {
    target.starts_with("https://") || target.starts_with("mailto:")
}

/// The page without its code blocks.
fn prose(content: &str) -> String {
    let mut is_code = false;
    let lines = content.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// What follows `](` or stands in `src="…"` and `srcset="…"`.
fn targets(content: &str) -> impl Iterator<Item = &str> {
    let links = content.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let sources = ["src=\"", "srcset=\"", "href=\""];
    links.chain(
        sources.into_iter().flat_map(|word| content.split(word).skip(1).filter_map(|rest| rest.split('"').next())),
    )
}

/// The headings of a page, as anchors: lower case, words joined by `-`, other signs left out.
fn headings(path: &Path) -> Vec<String> {
    let content = prose(&fs::read_to_string(path).unwrap_or_default());
    let titles = content
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    let slug = |title: &str| -> String {
        let kept = title
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .collect::<String>();
        kept.replace(' ', "-")
    };
    titles.map(slug).collect()
}

#[test]
fn headings_become_anchors() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.md");
    fs::write(&page, "# A host with its own `core.hooksPath`\n```sh\n# no heading\n```\n## What is it?\n").unwrap();
    assert_eq!(headings(&page), ["a-host-with-its-own-corehookspath", "what-is-it"]);
}
