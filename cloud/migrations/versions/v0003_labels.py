"""Labels of teachers and of people, and golden frames."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_SHA256 = sa.String(64)


def upgrade() -> None:
    op.create_table(
        "teacher_labels",
        sa.Column("case_id", _SHA256, nullable=False),
        sa.Column("teacher_sha256", _SHA256, nullable=False),
        sa.Column("teacher_name", sa.Text, nullable=False),
        sa.Column("teacher_version", sa.Text, nullable=False),
        sa.Column("views", sa.Text, nullable=False),
        sa.Column("is_reused", sa.Boolean, nullable=False),
        sa.Column("labelled_at", sa.DateTime, nullable=False),
        sa.Column("width", sa.Integer, nullable=False),
        sa.Column("height", sa.Integer, nullable=False),
        sa.Column("boxes", sa.Text, nullable=False),
        sa.Column("ignored", sa.Text, nullable=False),
        sa.Column("agreement", sa.Double, nullable=False),
        sa.Column("witnesses", sa.Integer, nullable=False),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("doubts", sa.Text, nullable=False),
        sa.Column("judged_by", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("case_id", "teacher_sha256", name="pk_teacher_labels"),
        _of_case("teacher_labels"),
    )
    op.create_index("ix_teacher_labels_verdict", "teacher_labels", ["verdict"])
    op.create_index("ix_teacher_labels_teacher_sha256", "teacher_labels", ["teacher_sha256"])
    op.create_table(
        "person_labels",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=True),
        sa.Column("case_id", _SHA256, nullable=False),
        sa.Column("said_by", sa.Text, nullable=False),
        sa.Column("said_at", sa.DateTime, nullable=False),
        sa.Column("came_by", sa.Text, nullable=False),
        sa.Column("is_usable", sa.Boolean, nullable=False),
        sa.Column("width", sa.Integer, nullable=False),
        sa.Column("height", sa.Integer, nullable=False),
        sa.Column("boxes", sa.Text, nullable=False),
        sa.Column("replaces_teacher_sha256", _SHA256, nullable=True),
        sa.Column("replaces_id", sa.Integer, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_person_labels"),
        _of_case("person_labels"),
    )
    op.create_index("ix_person_labels_case_id", "person_labels", ["case_id"])
    op.create_table(
        "golden_frames",
        sa.Column("case_id", _SHA256, nullable=False),
        sa.Column("site", sa.Text, nullable=False),
        sa.Column("wanted_at", sa.DateTime, nullable=False),
        sa.Column("stratum", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("case_id", name="pk_golden_frames"),
        _of_case("golden_frames"),
    )
    op.create_index("ix_golden_frames_site", "golden_frames", ["site"])


def downgrade() -> None:
    for table in ("golden_frames", "person_labels", "teacher_labels"):
        op.drop_table(table)


def _of_case(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["case_id"], ["cases.id"], name=f"fk_{table}_case_id", ondelete="CASCADE")
