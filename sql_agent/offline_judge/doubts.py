r"""Words around a value: those that doubt, deny or take back, and those that only say where it is from.

Guarantees: closed lists in the normal form; what frames and courtesy say neither denies nor doubts. In the lists of
patterns each line is a part of one alternative.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sql_agent.offline_judge.lexicon import Lexicon
from sql_agent.offline_judge.words import PHRASES, phrases

DOUBTS_ZH = r"""
[?？]|\.\.|…|[或猜谣假谎疑]|还是|要么|可能|也许|没准|大[概致约]|恐怕|约[莫摸]|约(?=有?[\d#])|左右|上下|至少|至多|最多(?=[\d#])|起码
似乎|好像|像是|仿佛|难道|据说|听说|据传|传[说闻]|当真|(?<![没不])错|误|相反|相左|估[计摸]|推[测断]|应[该当]|不定|如果|假如|倘若|若是|其实
原[定本]|起初|实际|等等|[更纠改]正|抱歉|对不起|收回|作废|哦|但|不过|然而|却|虽|尽管|除非|除了|除#|#以?外
#[^#\d]{0,3}(?:[以之][上下内外前后]|前后)|# ?[^\W\d]?[多余](?!数)|否认|反对|同意|记得|印象|我想|认为|觉得|以为
吧|[哪岂]|介于|二者|两者|其中之一|另说|仅供|玩笑|胡说|编的|虚构|几乎|[将接]近|近(?=[\d#])|不到|超过|[多少高低大小]于|有待|逾(?=[\d#])
看似|[看听]上?[起去]来?像|[查找]不到|没有?(?:记录|资料|提到|提及|找到|查到|信息|数据)|无[法从]|不[清知详]|撤销|矛盾|取消|看情况|难说|有时|未必|才怪|别信
反[之话]|多半|八成|十有八九
"""
DOUBTS_EN = r"""
or|above|below|before|after|either|one of|whether
may ?be|perhaps|possibl[ey]|probabl[ey]|presumabl[ey]|suppos\w*|alleged\w*|apparently
seeming\w*|conceivabl[ey]|likely|unlikely|might|may|could|about|around|approximate\w*|approx|roughly|nearly|almost
close to|circa|over|under|(?:more|less|fewer|other|rather) than|more or less|at (?:least|most)|up to|between|somewhere
unsure|uncertain|guess\w*|some say
estimate[sd]?|assum\w*|suspect\w*|thinks?|thought|believe\w*|reckon|imagin\w*|remember\w*|recall\w*|memory|opinion|seem\w*
appears? to|doubt\w*|unclear|unknown|rumou?r\w*|lies?|lying|liar|false|fake|myth|jok\w+|kidding|untrue|wrong\w*
incorrect\w*|inaccurate|mistake\w*|errors?|^wait|hm+|actually|sorry|apolog\w+|instead|rather|correction|scratch|ignor\w+
disregard|forget|retract\w*|except|versus|vs|unless|although|though|but|however|contrary|opposite|reverse|disagree\w*
den(?:y|ies|ied)|reject\w*|refuse\w*|hardly|barely|scarcely|far from|anything but|pretend\w*|hypothe\w+|alternatively
depends?|sometimes|invented|nonsense|ridiculous|if|quote me|not (?:know|say|sure|certain|find|mention)
by (?:the|an?) (?:teacher|student|pupil|assistant|son|daughter|wife|husband|brother|sister|mother|father) of(?= #)
(?:second|third|fourth|2nd|3rd|4th)[- ](?:most|least|\w+est)|(?:look|sound|taste|smell)s? like|like(?= #)|resembl\w*
(?:free|devoid) (?:of|from)|bet|wager|apart from
(?<!is )(?<!are )(?<!was )(?<!were )(?<!be )used to|yet to|formerly|no longer
no (?:records?|information|data|entry|results?|mention|idea|clue)
"""
DENIALS = re.compile(
    r"[不没非无未否莫勿绝]|\b(?:no|not|never|none|neither|nor|cannot|nobody|nothing|nowhere|without|by no means)\b"
)
YES = re.compile(
    r"(?:yes|yeah|yep|true|correct|right|indeed|affirmative)(?![a-z])"
    r"|肯定的?|[没不]错|是(?:的|啊)?|对(?:的|啊)?|有(?:的)?|可以|确实|会的?|能"
)
NO = re.compile(
    r"(?![没不]错)(?:(?:no|nope|false|incorrect|negative)(?![a-z])"
    r"|不(?:是|对|可以|会|能|行)?的?|没(?:有)?|否(?:定)?|并[不非]|并没有|[还尚]未|还没有?|未|从来?(?:没有?|不)|无)"
)
TITLES = "mr mrs ms miss dr prof professor sir madam dame captain mx 先生 女士 小姐 教授 博士 医生 老师 经理 同志 太太"
FREE = """
the a an is are was were be been has have had does do did of in on at by to for with and there it its s this that they
them these those he she his her their who which what how many much when where here total altogether all as so from
namely following follows follow than i we you me my our us your found ve ll re m d can ca wo percent dollars euros
pounds $ € £ ¥ % ° c f , . & ' =
"""
# Of a clause that tells no value, of a sentence around a quote: what it is and whence it is known, and courtesy.
TALK_EN = """
sure certainly yes okay ok course great thanks thank question asking happy glad help please note summary summarise
short brief conclusion overall result results output response data dataset table tables record records row rows column
query queries sql search lookup file list listed looking look looked checking check checked ran run running see seen
shown showing show shows says read tells tell told states stated indicates gives returned returns retrieved retrieve
information clear clearly straightforward simple simply just only exactly precisely above below after having up order
ranked sorted answers final based stands reads one two three first second third hi now know well far still yet anymore
currently confirm confirmed determined queried relevant moment monday tuesday wednesday thursday friday saturday
sunday source sources got patience per summarize let back recorded find good given entry entries knowledge base go
understood asked point everything available requested in_that_order in_this_order as_follows excerpt extract passage
text wording quote quoted quotation verbatim word words written stored noted documented cell cells heading contents
located locate fetch fetched pull pulled getting executed execute successfully successful completed complete done
ready process request asks want wanted needed interested concerning regarding with_regard_to in_terms_of as_for
to_sum_up then finally also additionally moreover furthermore secondly firstly thirdly lastly directly direct straight
copied taken_from key_points main_points points overview covers cover summarised summarized outlined present presented
display displayed provide provided provides providing share shared report hey dear let_me let_us understand matching
matched named filter filtered schema tool system catalogue register leaflet page document connected inspected selected
using as_written as_is word_for_word in_full in_detail pleasure no_problem no_problem_at_all through quickly quick
title items part parts replying reply here_you_go there_you_go break_down gladly absolutely definitely indeed end
of_course hold hold_on one_moment a_moment thanks_for_waiting wait waiting apologies_for_the_delay sorry_for_the_wait
sorry_for_the_delay turning_to moving_on moving_on_to coming_to continuing consulted reading reviewed review reviewing
accessed access accessing taken can_be_summarised can_be_summarized as_stated as_recorded under_the_heading walk
used_the bit mentioned remaining concerns behalf addresses so_that this_one stored_for runs holds held says_the
got_this nothing_else_added pardon_me excuse_me sorry_about_that citing cited extracted ran_successfully
executed_successfully completed_successfully against_the_database this_reflects current_state comparison comparisons
compare compared differ differs difference differences main_difference main_differences similarity similarities
as_you_can_see aspect aspects both key_point above_is the_above
"""
TALK_ZH = """
来源 信息 数据 知识库 知识 条目 词条 来源于 数据来源 来自 说明 说明书 官方 文档 网站 详情 细节 情况 这个 好问题 问题
1个 回复 解答 查询到 检索到 搜索 整理 整理好 汇总 列出 列举 列于 归纳 告诉 了解 想了解 知道 想知道 关心 咨询 询问 为您
给您 帮您 您的 您所 您 我 我们 我来 这里 这是 这些 这 一下 下面 下列 下述 以下是 如下所示 所示 具体来说 详细 简单
简单来说 简单地说 简而言之 简言之 总的来说 总体来说 总体而言 概括来说 好的 好 没问题 当然 当然可以 明白 明白了 很高兴
关于 对于 针对 至于 就 来说 而言 来看 相关 里 里面 记载的 记录的 的是 已 已经 现 将 被 到 了 在 从 中可 看到 看出 可知
得知 得到 资料里 该条目 本条 请看 请见 请查收 请参考 请参阅 这样 完成 引自 感谢 感谢提问 你的 查了 查询了 下 查到了
执行 执行了 运行 运行了 语句 表 表中 表里 的记录 表格 库 库里 表明 表示 可以 可 看 得出 找到 发现 返回 返回了 最终
最后 结论 清楚 很清楚 很 明确 按照 依照 依据 上 那么 那 那里 那天 他 她 他们 它们 这家店 该店 店里 这本书 该书 随时
欢迎 继续 提问 祝您生活愉快 需要 帮助 目前 当前 现在 如今 担任 次序 顺序 排序 排列 由大到小 由高到低 乃 所 于 尚 向 把
给 让 用 以 此 一共 达 达到 约定 找到了 我在 几个方面 几个 几点 要点 概括 概括为 归纳为 分为 逐条 列出来 栏 1栏 1列
这1列 单元格 全文 原话 原句 原样 摘录 摘自 出自 源自 转述 引用 引述 抄录 呈现 展示 给出 读取 读取到 读到 取到 定位
定位到 翻 搜 搜到 搜到了 调出 调取 匹配 匹配到 对应 对应的 直接 完整 收到 稍等 请稍等 让我 让我们 来 看看 先 再 再来看
接着 接下来 下来 随后 然后 您问 您问的 您问的是 您问到 您问到的 您提到 您提到的 提到 问到 您要的 您需要 所需 所需的
您查 您查询的 想查 这边 已经为您 查好 整理了 汇总了 总结了 成功 相应 啦 呀 哦 喔 哈 嗨 哈喽 各位 嗯 您的提问
感谢您的提问 提出 这儿 在这里 在下面 供您 供您参阅 参阅 谈到 说到 上述 上文 下文 文字 资料库 资料表 数据表 数据表明
资料表明 系统 依 另1项 第4 再次 最后1 这些内容 按原文 按照原文 逐字 根据您的 您所问 所问 方面的 整理自 节选 节选自
记录显示 资料显示 正文 段落 本段 段 部分 标题 标注 内置 结构化 本地 文件中 文件里 请注意 可以概括 可以概括为 可概括为
可以归纳为 1遍 列名 确认 确认了 核对了 这么写 是这么写的 就写了 怎么写 写的 写的是 说完 念完 阅读 便于您 便于您阅读
回答之前 放在 完整地 段文字 刚才 1项 同1条 这1项 该项 点 未作改动 未作修改 未做改动 未做修改 出处 库内 库中 资料库中
您咨询的 您想了解的 您想知道的 您关心的 看1下 看1看 查1下 查阅到 查看 为了 有哪些 这段 这段文字 上面这段 下面这段 要的
需要的 1起 以当前数据库为准 注: 比较 对比如下 比较如下 区别 区别如下 主要区别 不同 不同点 相同点 有所不同 所不同 差异
差异如下 主要差异 异同 2者 2种 2个 2款 2种药 2种药物 2种药品 2种疾病 需要注意 需要注意的是 写明 明确写明 载明 注明
指出 希望这些
"""
TALK = f"{TALK_EN} {TALK_ZH}"
# And of what follows the last quote: advice and offers.
CLOSING = """
consult contact ask refer visit speak talk doctor doctors physician pharmacist healthcare provider professional
professionals qualified expert experts specialist customer service support staff team manual official documentation
website documents instructions label general informational educational purposes reference always own personal specific
situation circumstances case medical advice concern doubt unsure questions if like would wish need needs anything else
other another more further any hope helps helped useful feel free assist welcome nice day luck stay safe healthy take
care best wishes individual use or comes anytime reach out again do_not_hesitate only assistance message respond
clarify clarified unclear explain elaborate expand export spreadsheet format formatting prefer preferred say come_back
regards kind sincerely cheers wishing speedy recovery helpful feedback emergency services number lawyer solicitor
attorney legal financial manufacturer seek attention decision decisions verify latest current version up_to_date date
not_a_substitute_for substitute does_not_replace do_not_replace not_replace not_medical_advice not_legal_advice
not_professional_advice not_constitute not_intended diagnosis diagnosis_or_treatment judgement judgment licensed
offered follow_up follow_ups drop line happy_to that_is_all that_is_everything that_was pharmacists lawyers advisor
adviser clinician nurse gp care_team helpline hotline local authority authorities office department hr provider_with
not_hesitate shall continue questions_or_concerns you_may feel_free_to_ask bring mind handy save whenever visit_your
ai assistant language_model substitute_for retrieves attention_if unwell
仅 仅供 仅供参考 供您参考 为准 温馨提示 友情提示 提示 提醒 建议 注 备注 请 请以 请您 请按 请遵 请在 遵医嘱 遵循 谨遵
医嘱 如 如有 若 若有 如果 如果您 如需 如您 还 还想 还需要 其他 其它 别的 更多 想 的话 疑问 疑惑 任何 疑虑 不适 不清楚
不明白 不懂 不确定 吗 呢 我再 帮 帮忙 问 问我 追问 您可以 联系 请咨询 寻求 及时 尽快 务必 前往 专业 专业人士 人士 人员
专业人员 工作人员 医生 医师 药师 医院 正规医院 医疗 机构 客服 商家 厂家 售后 老师 教师 管理员 景区 学校 实际 具体情况
最新 公告 公布 通知 希望 希望这 希望能 有所 对您 对你 能对您 祝您 祝你 健康 早日康复 生活愉快 愉快 顺利 感谢您
感谢使用 你 服务 高兴 乐意 进一步 解决 需要我 使用前 用药前 操作前 购买前 参观前 出行前 我可以 可以随时 可以继续
指导下使用 在医生指导下 及时就医 及时就诊 有所帮助 前请 或 相关部门 有关部门 主管部门 部门 主治医师 主治医生 法律
专业意见 医疗建议 医学建议 法律意见 投资建议 构成 不构成 并不构成 不能替代 不能代替 不可替代 无法代替 无法替代 替代
代替 不作为 不作 诊断 诊疗 面诊 就诊 诊断依据 医嘱为准 意见 决策 决定 判断 核实 核对 查阅 政策 热线 客户 厂商 生产厂家
出入 如有出入 规定 最新规定 正式文件 正式 文件 官方文件 告知 请告知 说1声 留言 找我 叫我 都在 我都在 能帮到您 帮到您
帮到你 能帮上忙 帮上忙 是否需要 您是否需要 需不需要 要不要 您看 可以吗 还需要我 继续查 再查 再查询 顺便 导出 翻译 展开
补充 祝好 祝 今天 工作 学习 别客气 不客气 久等 见谅 包涵 到此 到这里 就到这里 以上就是 以上是 全部 完毕 就这些 这些了
免责声明 声明 仅作 仅用于 用途 用于参考 信息展示 个人情况 个体情况 具体用药 用药 具体操作 办理前 购买 使用 如有不适
尽管 尽管问 尽管告诉我 随时找我 再问 想看 换个 发给您 发给我 慢慢看 您慢慢看 就到这儿 到这儿 语言模型 助手 商量 交给
专业判断 一般参考 仅供1般参考 主管机关 机关 注册医生 业务 办理 查询前 没有其他问题 其余 1声 说1下 心情 生活 身体健康
平安 稍后 有需要 有需要就叫我 希望这些信息 希望这些信息对您有所帮助 诊断和治疗 诊断或治疗 诊断与治疗 诊断及治疗
诊疗建议 专业医生的 专业医师 希望以上
"""
SOURCE = re.compile(
    r"^(?:(?:according to|based on|judging by|going by|per|from|looking at|after|as (?:per|far as|the)|in our|in the)\b"
    r"|[根依]据|[按依]照|通过(?:执行|运行|查询)|[按据从经查])"
)


def alternatives(text: str) -> list[str]:
    """The parts of a list whose lines and bars divide."""
    return [part for line in text.split("\n") for part in line.split("|") if part]


DOUBTS = re.compile(rf"{'|'.join(alternatives(DOUBTS_ZH))}|\b(?:{'|'.join(DOUBTS_EN.split(chr(10))[1:-1])})\b")
# Before a quote these permit it, or may.
PERMITS = frozenset(phrases("can could will would should ca wo ll d yes no only anymore yet 可 可以 需要 用 给 让"))
ABOUT = re.compile(  # a thing, and no number that follows; and what follows
    r"(?<![a-z])about(?![a-z])(?!(?: (?:the|an?|some))*\W*$)"
    r"|\b(?:listed|given|shown|described|set out|outlined|as|see) below\b"
    r"|\bbelow (?:is|are)\b|\bbelow\W*$|\babove (?:is|are|was|were)\b|\bbetween (?=the(?:se|m)? ?(?:two)?\W*$)"
    r"|\bunder(?= the heading\b)"
)
OFFERS = re.compile(
    r"(?:\b(?:else|other|another|more|further|help|assist)\b|其[他它]|别的|更多|继续|帮)[^.?!\n。]{0,80}\?"
)
CITES = re.compile(
    r"[、,\s]*(?:(?:数据|资料|信息)?来源|引自|出自|摘自|源自|source|as (?:stated|recorded|listed|given) in)"
)
_TALK = {*phrases(TALK)} - PERMITS
_AROUND = {*FREE.split(), *_TALK, *phrases(PHRASES), "about"} - PERMITS
_FRAME, _LAST = Lexicon(_AROUND), Lexicon({*_AROUND, *phrases(CLOSING)})
_WHOLE = " ".join(one for one in TALK.split() if "_" in one or not one.isascii())  # says nothing with what denies in it
_CHAT, _CLOSING = Lexicon(phrases(_WHOLE)), Lexicon(phrases(f"{_WHOLE} {CLOSING}"))


def is_frame(text: str, unknown: Sequence[tuple[int, int]], *, is_last: bool = False) -> bool:
    """Whether a text around a quote only says whence it is or, where no quote follows, closes; `unknown` is where its
    words of no list are."""
    chat, frame = (_CLOSING, _LAST) if is_last else (_CHAT, _FRAME)
    text = OFFERS.sub(lambda offer: offer[0].replace("?", " "), text) if is_last else text
    strange = {place for start, end in frame.read(text)[1] for place in range(start, end)}
    is_strange = any(place in strange for start, end in unknown for place in range(start, end))
    if is_strange or re.match(r"\W*(?:or(?![a-z])|或)", text):
        return False
    if is_last and strange and is_frame(text, unknown) is False:  # advice and offers tell nothing of what is asked
        return False
    text = ABOUT.sub(lambda found: " " * len(found[0]), text)
    for start, end, _ in reversed(chat.read(text)[0]):
        text = f"{text[:start]} {text[end:]}"
    text = re.sub("[^ -~]+", " ", text)  # in Chinese what is known may be a word that doubts
    return not DOUBTS.search(text) and not DENIALS.search(text)
