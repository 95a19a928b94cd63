"""Reliability diagrams by group."""

from caltrain_tf.checks import check_count
from caltrain_tf.figures.reliability_diagram import reliability_diagram
from caltrain_tf.figures.reliability_drawing import new_reliability_axes
from caltrain_tf.metrics.groupwise import rows_of_groups
from caltrain_tf.metrics.inputs import read

# Diagrams of one figure; more of them would have no room on any page.
_MOST_GROUPS = 60


def group_reliability(
    probs,
    labels,
    groups,
    num_bins=15,
    from_logits=False,
    columns=4,
    *,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Draws a reliability diagram of all examples, and one of each group.

    Each is that of `reliability_diagram` of the group's examples alone, with
    their number in the title. `metrics.groupwise` gives the errors as a table.

    Args:
        probs: Probabilities, or logits, `(..., K)`; `(N,)` or `(..., 1)` for
            those of class 1 of a binary problem.
        labels: Class ids `(...)`, or one-hot rows `(..., K)`.
        groups: The group of each example, `(...)` or of the first axes, as of
            `metrics.groupwise`: at most 60 different ones.
        num_bins: Number of bars of each diagram.
        from_logits: Whether `probs` holds logits.
        columns: How many diagrams side by side.
        multi_label: Whether the columns are binary problems, to be pooled.
        ignore_class: The label of examples that count nothing.
        sample_weight: Weights of the examples, `(...)` or of the first axes.

    Returns:
        A `matplotlib.figure.Figure`.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
        >>> groups = ["young", "old", "young", "young"]
        >>> figure = ct.figures.group_reliability(probs, [0, 0, 1, 0], groups)
        >>> [ax.get_title() for ax in figure.axes]
        ['all (4)', 'old (1)', 'young (3)']
    """
    columns = check_count("columns", columns)
    examples = read(
        probs, labels, from_logits, multi_label, ignore_class, sample_weight
    )
    rows = rows_of_groups(examples, groups)
    if len(rows) > _MOST_GROUPS:
        raise ValueError(
            f"`groups` must hold at most {_MOST_GROUPS} different ones. "
            f"Received: {len(rows)}"
        )
    probs, labels = examples.whole()
    parts = [("all", slice(None)), *rows.items()]
    axes = new_reliability_axes(len(parts), columns)
    for ax, (name, index) in zip(axes, parts, strict=True):
        weight = examples.weight
        reliability_diagram(
            probs[index],
            labels[index],
            num_bins,
            from_logits,
            ax,
            f"{name} ({len(labels[index]):,})",
            sample_weight=weight if weight is None else weight[index],
        )
    return axes[0].figure
